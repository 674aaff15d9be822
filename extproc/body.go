package extproc

import (
	"encoding/json"
	"strconv"

	"google.golang.org/grpc/mem"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// maxExpect bounds the memory allocated for a declared length.
const maxExpect = 1 << 20

// copyStep is the maximum length of one copy. A copy cannot be preempted, so the garbage collector
// and all other streams would wait for a large one.
const copyStep = 256 << 10

// heldBody joins the chunks of a request body. A single chunk stays in its receive buffer; several
// are copied into one pooled buffer.
type heldBody struct {
	data   []byte
	buffer mem.Buffer // backs data while there is one chunk, and after seal
	lent   *[]byte    // backs data while chunks are joined
	expect int        // declared length
}

// add appends the body of a message.
func (b *heldBody) add(m *wire.Inbound) {
	p := m.Bytes()
	switch {
	case len(p) == 0:
	case len(b.data) == 0:
		m.Body.Ref()
		b.buffer, b.data = m.Body, p
	default:
		b.grow(len(b.data) + len(p))
		b.data = append(b.data, p...)
	}
}

// grow makes room for n bytes in a pooled buffer.
func (b *heldBody) grow(n int) {
	if b.lent != nil && n <= cap(b.data) {
		return
	}
	size := max(n, min(b.expect, maxExpect))
	if b.lent != nil {
		size = max(size, 2*cap(b.data))
	}
	lent := wire.Buffers.Get(size)
	data := (*lent)[:0]
	for rest := b.data; len(rest) > 0; rest = rest[min(copyStep, len(rest)):] {
		data = append(data, rest[:min(copyStep, len(rest))]...)
	}
	b.release()
	b.lent, b.data = lent, data
}

// seal returns the body as a buffer that can be sent in slices. Nothing may be added afterwards. b
// keeps its reference.
func (b *heldBody) seal() mem.Buffer {
	if b.lent != nil {
		*b.lent = b.data
		b.buffer, b.lent = mem.NewBuffer(b.lent, &wire.Buffers), nil
	}
	return b.buffer
}

// release frees the memory. No sent message may refer to it any more.
func (b *heldBody) release() {
	if b.lent != nil {
		wire.Buffers.Put(b.lent)
	}
	if b.buffer != nil {
		b.buffer.Free()
	}
	b.lent, b.buffer, b.data = nil, nil, nil
}

// splice returns the body of r with the model's JSON string literal replaced by the decision's
// target, followed by the decision's additional members. The decision's priority replaces the
// body's own. Without a known model position the body is unchanged.
func splice(r *request.Request, d *request.Decision) []byte {
	body, model, urgency := r.Body, request.Span(r.ModelSpan), r.Urgency
	if !model.Within(body) {
		return body
	}
	literal := model.Of(body)
	if d.ModelTarget != "" {
		var err error
		if literal, err = json.Marshal(d.ModelTarget); err != nil { // marshalling a string cannot fail
			return body
		}
	}
	out := make([]byte, 0, len(body)+len(literal)+len(d.BodyExtra)+len(`,"priority":`)+maxDigits)
	at := 0
	until := func(to int) {
		out = append(out, body[at:to]...)
		at = to
	}
	replaces := d.Prioritised && urgency.Within(body)
	replace := func() {
		until(urgency[0])
		out = strconv.AppendInt(out, d.Priority, 10)
		at = urgency[1]
	}
	if replaces && urgency[0] < model[0] {
		replace()
	}
	until(model[0])
	out = append(out, literal...)
	at = model[1]
	if d.Prioritised && !replaces {
		out = strconv.AppendInt(append(out, `,"priority":`...), d.Priority, 10)
	}
	out = append(out, d.BodyExtra...)
	if replaces && urgency[0] > model[0] {
		replace()
	}
	return append(out, body[at:]...)
}

// maxDigits is the maximum length of a priority.
const maxDigits = 20
