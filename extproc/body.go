package extproc

import (
	"encoding/json"

	"google.golang.org/grpc/mem"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker"
)

// maxExpect bounds how much memory a declared length alone can claim.
const maxExpect = 1 << 20

// copyStep is how much of a body is copied at a time: one copy cannot be interrupted,
// and the collector, and with it every other stream, would wait for tens of megabytes.
const copyStep = 256 << 10

// heldBody joins the chunks of a request body. A body of one chunk is kept
// where it was received; more are copied into one lent buffer.
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

// grow makes room for n bytes in a lent buffer.
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

// seal returns the body as a buffer that can be sent in slices. Nothing may be
// added any more; the reference stays b's.
func (b *heldBody) seal() mem.Buffer {
	if b.lent != nil {
		*b.lent = b.data
		b.buffer, b.lent = mem.NewBuffer(b.lent, &wire.Buffers), nil
	}
	return b.buffer
}

// release gives the memory back once nothing sent refers to it.
func (b *heldBody) release() {
	if b.lent != nil {
		wire.Buffers.Put(b.lent)
	}
	if b.buffer != nil {
		b.buffer.Free()
	}
	b.lent, b.buffer, b.data = nil, nil, nil
}

// splice returns body with the JSON string literal at span, the model, replaced
// by the decision's target, and the decision's further members behind it. A span
// outside of the body returns it as it is.
func splice(body []byte, span [2]int, d *picker.Decision) []byte {
	if span[0] < 0 || span[1] <= span[0] || span[1] > len(body) {
		return body
	}
	literal := body[span[0]:span[1]]
	if d.ModelTarget != "" {
		var err error
		if literal, err = json.Marshal(d.ModelTarget); err != nil { // a string always marshals
			return body
		}
	}
	out := make([]byte, 0, len(body)+len(literal)+len(d.BodyExtra))
	out = append(out, body[:span[0]]...)
	out = append(out, literal...)
	out = append(out, d.BodyExtra...)
	return append(out, body[span[1]:]...)
}
