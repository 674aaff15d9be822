package extproc

import (
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// withoutKVTransfer applies the policy for members that only proxies may set to a parsed request. It
// reports whether it changed r.Body. In that case the request must be parsed again, and the proxy's
// body replaced.
func (st *stream) withoutKVTransfer(extent bodyExtent) (changed bool, err error) {
	r := st.request
	if !r.KVTransfer {
		return false, nil
	}
	if extent != bodyWhole || r.Members > kvtransfer.MaxMembers {
		return false, request.Errorf(request.ReasonBadRequest, "request body may contain fields that only proxies may set, and cannot be parsed")
	}
	o, err := kvtransfer.Parse(r.Body)
	if err != nil {
		return false, request.Errorf(request.ReasonBadRequest, "request body is not a valid JSON object")
	}
	body, removed, err := st.p.opts.KVTransfer.Apply(&o)
	if err != nil {
		return false, request.Errorf(request.ReasonBadRequest, "%v", err)
	}
	if len(removed) == 0 {
		return false, nil
	}
	st.p.metrics.stripped.Add(float64(len(removed)))
	st.in.renamed, r.Body = body, body
	return true, nil
}

// warnUnseen logs once that bodies reach engines uninspected.
func (p *Processor) warnUnseen(m *streamModes) {
	if m.Request == BodyFullDuplex || m.Request == BodyBuffered || m.observe || p.unseen.Swap(true) {
		return
	}
	p.opts.Log.Warn("the proxy does not send whole request bodies: KV transfer fields of clients reach the engines",
		"request_body_mode", m.Request.String())
}
