"""PodMonitor and PrometheusRule of one deployment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from speccli.core.manifests import names
from speccli.core.manifests.deployment_rules import alert_groups
from speccli.core.manifests.options import RenderOptions
from speccli.core.manifests.pool_rules import scaling_group
from speccli.core.manifests.pools import Unit

Object = dict[str, Any]

SCRAPE_S = 5
"""Queue wait is to be seen within seconds; the fleet's other rules look back over minutes."""


def pod_monitor(unit: Unit, options: RenderOptions) -> Object:
    """Scrapes every pod of the deployment, also those that are not ready or being drained."""

    def copied(label: str, to: str) -> Object:
        source = re.sub(r"[^a-zA-Z0-9_]", "_", label)
        return {"sourceLabels": [f"__meta_kubernetes_pod_label_{source}"], "targetLabel": to}

    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _meta(unit, options),
        "spec": {
            "selector": {"matchLabels": names.selector(unit.deployment)},
            "podMetricsEndpoints": [
                {
                    "port": names.PORT_NAME,
                    "path": "/metrics",
                    "interval": f"{SCRAPE_S}s",
                    "scrapeTimeout": f"{SCRAPE_S - 1}s",
                    "relabelings": [
                        copied(names.DEPLOYMENT, names.DEPLOYMENT_LABEL),
                        copied(names.POOL, names.POOL_LABEL),
                    ],
                    "metricRelabelings": [
                        {"sourceLabels": ["__name__"], "regex": ".+_created", "action": "drop"}
                    ],
                }
            ],
        },
    }


def prometheus_rule(units: Sequence[Unit], options: RenderOptions) -> Object:
    """What autoscaling reads, and `specctl alert rules` for this deployment alone."""
    main = units[0]
    groups = [scaling_group(main.deployment, options.namespace)]
    if options.rules == "all":
        groups += alert_groups(units, options.namespace)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _meta(main, options),
        "spec": {"groups": groups},
    }


def _meta(unit: Unit, options: RenderOptions) -> Object:
    meta = names.meta(unit.deployment, options.namespace, unit.deployment)
    meta["labels"] = {**meta["labels"], **options.monitor_labels}
    return meta
