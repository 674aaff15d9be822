package extproc

import (
	"errors"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/coding"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Label values of compressed bodies.
const (
	codedDecoded = "decoded"
	codedUnknown = "unknown"
	codedLimit   = "limit"
	codedMemory  = "memory"
	codedDamaged = "damaged"
)

// usualRatio is the typical compression ratio of a body. It decides whether decoding has to wait
// for CPU.
const usualRatio = 10

// codings returns the content codings of the request body.
func (v headerView) codings() []string {
	var standard, sglang []string
	for i := range v.list {
		switch v.list[i].Name {
		case coding.HeaderStandard:
			standard = append(standard, v.list[i].Value)
		case coding.HeaderSGLang:
			sglang = append(sglang, v.list[i].Value)
		}
	}
	if standard == nil && sglang == nil {
		return nil
	}
	return coding.Of(standard, sglang)
}

// decode replaces a compressed request body by the decoded one. The proxy still forwards the
// compressed body. A body that cannot be decoded is not read; the engine decides whether it can
// read it. decode returns the readable extent.
func (st *stream) decode(extent bodyExtent) (bodyExtent, error) {
	r := st.request
	list := r.Headers.(headerView).codings()
	if len(list) == 0 {
		return extent, nil
	}
	end, ok := st.p.opts.Budget.AcquireCPU(st.ctx, usualRatio*len(r.Body))
	if !ok {
		return extent, request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	defer end()
	plain, err := coding.Decode(r.Body, list, coding.Limits{Size: st.p.opts.MaxBody, Take: st.in.memory.Take})
	result := codedDecoded
	switch {
	case err == nil, errors.Is(err, coding.ErrCut) && extent == bodyPrefix && len(plain) > 0:
		r.Body, st.in.decoded = plain, true
		st.p.metrics.codings.WithLabelValues(result).Inc()
		return extent, nil
	case errors.Is(err, coding.ErrUnknown):
		result = codedUnknown
	case errors.Is(err, coding.ErrLimit):
		result = codedLimit
	case errors.Is(err, coding.ErrMemory):
		result = codedMemory
	default:
		result = codedDamaged
	}
	st.p.metrics.codings.WithLabelValues(result).Inc()
	st.p.warnUndecoded(result, strings.Join(list, ","))
	r.Body, r.Fixed = nil, true
	return bodyAbsent, nil
}

// warnUndecoded logs the first body that cannot be decoded, per reason. KV transfer fields in an
// undecoded body are not removed.
func (p *Processor) warnUndecoded(result, codings string) {
	if _, logged := p.undecoded.LoadOrStore(result, true); logged {
		return
	}
	p.opts.Log.Warn("compressed request body cannot be decoded: the request is placed without its prompt and forwarded unchanged", "reason", result, "coding", budget.PrintableName(codings))
}
