// Where the schemas of custom resources come from: nothing is built of these.
module specctl.dev/crds

go 1.26.0

require (
	github.com/kedacore/keda/v2 v2.20.2
	github.com/prometheus-operator/prometheus-operator v0.91.0
	sigs.k8s.io/gateway-api v1.5.0
	sigs.k8s.io/gateway-api-inference-extension v1.5.0
)
