package extproc

import (
	"github.com/grapevine-epp/grapevine/picker/request"
)

// AnswerModel says whose name of the model answers carry when a decision sent
// the request to the engine under another name.
type AnswerModel string

// Values of AnswerModel.
const (
	// AnswerModelAuto restores the client's where answers pass through the picker
	// anyway, in full duplex; elsewhere an answer would end with its picker.
	AnswerModelAuto AnswerModel = "auto"
	// AnswerModelClient restores the client's wherever the proxy lets answers be
	// changed.
	AnswerModelClient AnswerModel = "client"
	// AnswerModelEngine leaves answers as they are.
	AnswerModelEngine AnswerModel = "engine"
)

// AnswerModels lists the values of AnswerModel.
func AnswerModels() []string {
	return []string{string(AnswerModelAuto), string(AnswerModelClient), string(AnswerModelEngine)}
}

// restores reports whether the client's model name is to be put back into the
// answer to a request that was renamed.
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
				st.p.opts.Log.Warn("answers keep the name that engines know a model by: the proxy sends no answers to the picker and has no allow_mode_override")
			}
			return false
		}
		return true
	}
}

// rewritesUnseen answers the headers of a request whose model may be rewritten
// while the proxy keeps its body from us: with a demand for the body where the
// proxy takes one, else with a refusal when the client asked for the rewrite.
// done is false when there is nothing to do.
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
