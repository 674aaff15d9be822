package endpoint

// Endpoint labels.
const (
	LabelRole      = "llm-d.ai/role"
	LabelEngine    = "inference.networking.k8s.io/engine-type"
	LabelEngineAlt = "llm-d.ai/engine-type"
)
