package picker

import (
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// keeps binds a response that the engine stored to it.
func (f *flight) keeps(o *request.Outcome) {
	if o.ResponseID != "" && f.request.Kind == request.KindResponses {
		id := f.ep.ID
		if f.ep.Far() {
			id = sessions.Cluster(f.ep.Cluster)
		}
		f.s.opts.Sessions.Bind(sessions.Binding{Session: sessions.ResponseKey(o.ResponseID), Endpoint: id, At: o.At})
	}
}
