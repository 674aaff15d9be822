package extproc

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// routingHeaders are the request headers by which a picker speaks to proxies,
// sidecars and engines. Only the picker may set them: a sidecar calls the
// addresses that it finds there. What a client sent under these names is
// removed from every request. deploy/envoy strips the same list before the
// picker sees the request, which also covers requests that no picker saw.
var routingHeaders = []string{
	headerDestination, keyServed, keySubset, keyFallback, keyScores,
	request.HeaderPrefiller, request.HeaderEncoders, request.HeaderDataParallel, headerKVSource, headerConformance,
}

// RoutingHeaders returns the request headers that never count when a client
// sends them.
func RoutingHeaders() []string { return slices.Clone(routingHeaders) }

// foreign appends the routing headers among the request's to dst. The
// destination is always set anew, so it needs no removal.
func foreign(dst []string, v headerView) []string {
	for i := range v.list {
		name := v.list[i].name
		if len(name) > 2 && name[1] == '-' && name != headerDestination && slices.Contains(routingHeaders, name) && !slices.Contains(dst, name) {
			dst = append(dst, name)
		}
	}
	return dst
}
