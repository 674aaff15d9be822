package extproc

import (
	"context"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// routingHeaders are the headers that clients may not send. deploy/envoy removes the same headers
// before the picker gets the request, which also covers requests that bypass it.
var routingHeaders = request.RoutingHeaders()

// foreign appends the request's routing headers to dst, and the client's choice of clusters unless the
// request is forwarded to another picker. The destination is always overwritten, so
// it need not be removed.
func foreign(dst []string, v headerView, forwarded bool) []string {
	for i := range v.list {
		name := v.list[i].Name
		if len(name) > 2 && name[1] == '-' && name != wire.HeaderDestination && (name == request.HeaderClusters && !forwarded || slices.Contains(routingHeaders, name)) && !slices.Contains(dst, name) {
			dst = append(dst, name)
		}
	}
	return dst
}

// forwards reports whether a decision sends the request to another cluster's gateway. Only such
// requests carry a hop token.
func forwards(d *request.Decision) bool {
	return slices.ContainsFunc(d.SetHeaders, func(h request.HeaderSet) bool { return h.Name == request.HeaderHop })
}

// trust removes untrusted values from the request, and returns the headers that must not reach the
// engine.
func (st *stream) trust() []string {
	st.kit.strip = st.kit.strip[:0]
	if t := st.p.opts.Trust(); t != nil {
		st.kit.strip = t.Apply(st.request, st.p.proxyNames(st.ctx), st.kit.strip)
	}
	return st.kit.strip
}

// proxyNames returns the names in the certificate of the stream's proxy. Without --client-ca
// certificates are not verified, and it returns none.
func (p *Processor) proxyNames(ctx context.Context) []string {
	from, ok := peer.FromContext(ctx)
	if !ok || !p.verified.Load() {
		return nil
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	return listen.CertificateNames(info.State.PeerCertificates[0])
}
