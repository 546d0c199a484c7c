"""Prometheus rules, their tests and a dashboard, from the thresholds that checks use.

`alerting` has the alerts, each with the streams that must and must not raise it; `cases` makes
promtool's tests of them; `dashboard` is Grafana's; `write` puts it all into a folder.
"""
