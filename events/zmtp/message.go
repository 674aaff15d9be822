package zmtp

// Message is one received message: a sequence of frames in one buffer that the next Recv reuses.
type Message struct {
	buf  []byte
	ends []int
	idle int // consecutive messages that used little of buf
}

const (
	keepBuffer  = 16 << 10 // buffers up to this size are never released
	shrinkAfter = 256      // consecutive small messages before a large buffer is released
)

// Len returns the number of frames.
func (m *Message) Len() int { return len(m.ends) }

// Frame returns the i-th frame, valid until the next Recv into m.
func (m *Message) Frame(i int) []byte {
	start := 0
	if i > 0 {
		start = m.ends[i-1]
	}
	return m.buf[start:m.ends[i]:m.ends[i]]
}

// AppendFrames appends every frame to dst and returns it.
func (m *Message) AppendFrames(dst [][]byte) [][]byte {
	for i := range m.ends {
		dst = append(dst, m.Frame(i))
	}
	return dst
}

// reset empties m. It releases a large buffer after many small messages.
func (m *Message) reset() {
	if cap(m.buf) > keepBuffer {
		m.idle++
		if len(m.buf) > cap(m.buf)/8 {
			m.idle = 0
		}
		if m.idle > shrinkAfter {
			m.buf, m.idle = nil, 0
		}
	}
	m.buf, m.ends = m.buf[:0], m.ends[:0]
}

// Size returns the bytes of all frames.
func (m *Message) Size() int { return len(m.buf) }
