package extproc

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// routingHeaders are those that clients may not send. deploy/envoy strips the
// same list before the picker sees the request, which also covers requests that
// no picker saw.
var routingHeaders = request.RoutingHeaders()

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
