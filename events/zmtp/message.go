package zmtp

// Message is one received message: a sequence of frames in one buffer that is
// reused by the next Recv.
type Message struct {
	buf  []byte
	ends []int
	idle int // messages in a row that used little of buf
}

const (
	keepBuffer  = 16 << 10 // a buffer of this size is never given back
	shrinkAfter = 256      // small messages in a row before a large buffer is given back
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

// reset empties m. A buffer that one large message blew up is released once
// many small ones have followed.
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
