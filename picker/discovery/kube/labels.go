package kube

import "github.com/grapevine-epp/grapevine/internal/kubeapi"

// API groups and kinds.
const (
	GroupPool    = "inference.networking.k8s.io"
	GroupPoolOld = "inference.networking.x-k8s.io"
	GroupNames   = "llm-d.ai"

	kindPool = "InferencePool"
)

var (
	poolsV1       = kubeapi.Resource{Group: GroupPool, Version: "v1", Plural: "inferencepools"}
	poolsOld      = kubeapi.Resource{Group: GroupPoolOld, Version: "v1alpha2", Plural: "inferencepools"}
	pods          = kubeapi.Resource{Version: "v1", Plural: "pods"}
	objectives    = kubeapi.Resource{Group: GroupNames, Version: "v1alpha2", Plural: "inferenceobjectives"}
	objectivesOld = kubeapi.Resource{Group: GroupPoolOld, Version: "v1alpha2", Plural: "inferenceobjectives"}
	rewrites      = kubeapi.Resource{Group: GroupNames, Version: "v1alpha2", Plural: "inferencemodelrewrites"}
	rewritesOld   = kubeapi.Resource{Group: GroupPoolOld, Version: "v1alpha2", Plural: "inferencemodelrewrites"}
)

// Annotations and labels of pods. Grapevine's own may be annotations or, if the value is a valid
// label value, labels; annotations take precedence.
const (
	activePorts    = "llm-d.ai/active-ports" // target ports that this pod serves, comma-separated
	activePortsOld = "inference.networking.k8s.io/active-ports"

	own             = "grapevine-epp.github.io/"
	noteModels      = own + "models"             // model names, comma-separated
	noteEventsPort  = own + "events-port"        // ZMQ PUB socket; 0: none
	noteReplayPort  = own + "events-replay-port" // ZMQ ROUTER socket; 0: none
	noteEventsTopic = own + "events-topic"       // subscription prefix
	noteEventsRanks = own + "events-ranks"       // data-parallel ranks behind one target port
	noteMetricsPort = own + "metrics-port"       // of the metrics page, if not the target port
	noteMetricsPath = own + "metrics-path"       // default: /metrics
)

// kept are the annotations that are read.
var kept = [...]string{
	activePorts, activePortsOld, noteModels, noteEventsPort, noteReplayPort, noteEventsTopic, noteEventsRanks, noteMetricsPort, noteMetricsPath,
}
