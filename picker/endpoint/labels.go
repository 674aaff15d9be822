package endpoint

// Endpoint labels.
const (
	LabelRole      = "llm-d.ai/role"
	LabelEngine    = "inference.networking.k8s.io/engine-type"
	LabelEngineAlt = "llm-d.ai/engine-type"
	// LabelRevision has one value for all roles of a revision in a set of the API group
	// disaggregatedset.x-k8s.io.
	LabelRevision = "disaggregatedset.x-k8s.io/revision"

	// LabelMetricsAddress and LabelMetricsPort say where the metrics page of a remote cluster is.
	LabelMetricsAddress = "metricsAddress"
	LabelMetricsPort    = "metricsPort"
)

// Paired reports whether two endpoints may serve parts of one request: unless both have a revision,
// and these differ. A missing label is no evidence.
func Paired(a, b *Endpoint) bool {
	return a.Revision == b.Revision || a.Revision == "" || b.Revision == ""
}
