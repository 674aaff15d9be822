// The last endpoint picker that the Gateway API Inference Extension published, which make
// conformance-reports tests. A module of its own: nothing of it is in what is shipped.
module github.com/grapevine-epp/grapevine/internal/setup/epp

go 1.26.3

require sigs.k8s.io/gateway-api-inference-extension v1.5.0
