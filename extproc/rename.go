package extproc

import (
	"github.com/grapevine-epp/grapevine/picker/request"
)

// AnswerModel selects the model name in responses when a decision has renamed the model.
type AnswerModel string

// Values of AnswerModel.
const (
	// AnswerModelAuto restores the client's name in full duplex, where responses pass through the
	// picker anyway. In other modes a response would then depend on its picker.
	AnswerModelAuto AnswerModel = "auto"
	// AnswerModelClient restores the client's name wherever the proxy allows response changes.
	AnswerModelClient AnswerModel = "client"
	// AnswerModelEngine leaves responses unchanged.
	AnswerModelEngine AnswerModel = "engine"
)

// AnswerModels lists the values of AnswerModel.
func AnswerModels() []string {
	return []string{string(AnswerModelAuto), string(AnswerModelClient), string(AnswerModelEngine)}
}

// restores reports whether to restore the client's model name in the response.
func (st *stream) restores() bool {
	if st.decision == nil || st.decision.ModelTarget == "" || st.request.Model == "" || st.modes.observe {
		return false
	}
	switch st.p.opts.AnswerModel {
	case AnswerModelEngine:
		return false
	case AnswerModelAuto:
		return st.modes.Response == BodyFullDuplex
	default:
		if st.modes.Response == BodyNone && !st.modes.override {
			if !st.p.fixedNames.Swap(true) {
				st.p.opts.Log.Warn("responses keep the engine's model name: the proxy does not send responses to the picker and does not set allow_mode_override")
			}
			return false
		}
		return true
	}
}

// rewritesUnseen handles the headers of a request whose model may be rewritten while the proxy does
// not send its body. It requests the body if the proxy supports that, otherwise it rejects a
// request that asks for the rewrite. done is false if there is nothing to do.
func (st *stream) rewritesUnseen(view headerView) (done bool, err error) {
	asked := view.Get(request.HeaderModelRewrite) != "" || view.Get(request.HeaderModelRewriteAlt) != ""
	if st.modes.observe || view.bodyUnread() || !asked && !st.p.opts.Rewrites() {
		return false, nil
	}
	if st.modes.override && !st.modes.early {
		st.modes.Request = BodyBuffered
		st.modes.unbuffers()
		return true, st.send(bufferRequestBody[st.modes.Response])
	}
	if asked {
		return true, st.refuse(request.Errorf(request.ReasonBadRequest,
			"the model cannot be rewritten: the proxy's request_body_mode %s keeps the body from the endpoint picker", st.modes.Request))
	}
	if !st.p.blindRules.Swap(true) {
		st.p.opts.Log.Error("model rewrites are configured but have no effect: the proxy withholds request bodies; "+
			"its request_body_mode must be BUFFERED or FULL_DUPLEX_STREAMED, or allow_mode_override on", "request_body_mode", st.modes.Request.String())
	}
	return false, nil
}
