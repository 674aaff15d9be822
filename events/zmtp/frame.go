package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// reader reads frames through a small buffer that grows while the stream is busy and shrinks when
// it is idle, so that thousands of idle streams use little memory.
type reader struct {
	src    io.Reader
	buf    []byte
	r, w   int
	limits Limits
	full   int      // consecutive fills that used the whole buffer
	msg    *Message // being read
	minor  byte     // minor version of the peer
}

// errIdle is returned by a source, without bytes, when it is silent but alive.
var errIdle = errors.New("zmtp: idle")

const (
	readBufferIdle = 2 << 10
	readBufferBusy = 64 << 10
	growAfter      = 8
	growStep       = 256 << 10 // maximum growth of a large frame's buffer ahead of its bytes
)

func newReader(src io.Reader, limits Limits) *reader {
	return &reader{src: src, buf: make([]byte, readBufferIdle), limits: limits}
}

// fill reads more into the buffer. It is called only if the buffer is empty or holds less than a
// frame header.
func (r *reader) fill() error {
	if r.r > 0 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.full >= growAfter && len(r.buf) < readBufferBusy {
		r.buf = append(make([]byte, 0, readBufferBusy), r.buf[:r.w]...)[:readBufferBusy]
		r.full = 0
	}
	n, err := r.src.Read(r.buf[r.w:])
	for errors.Is(err, errIdle) {
		r.rest()
		n, err = r.src.Read(r.buf[r.w:])
	}
	r.w += n
	if r.w == len(r.buf) {
		r.full++
	} else {
		r.full = 0
	}
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// rest releases memory when the stream is silent.
func (r *reader) rest() {
	if r.r == r.w && len(r.buf) > readBufferIdle {
		r.buf, r.r, r.w, r.full = make([]byte, readBufferIdle), 0, 0, 0
	}
	if r.msg != nil && len(r.msg.buf) == 0 {
		r.msg.buf = nil
	}
}

// need makes at least n bytes available in the buffer.
func (r *reader) need(n int) error {
	for r.w-r.r < n {
		if err := r.fill(); err != nil {
			if errors.Is(err, io.EOF) && r.w > r.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// header reads one frame header.
func (r *reader) header() (flags byte, size uint64, err error) {
	if err := r.need(2); err != nil {
		return 0, 0, err
	}
	flags = r.buf[r.r]
	if flags&flagReserved != 0 || flags&(flagCommand|flagMore) == flagCommand|flagMore {
		return 0, 0, fmt.Errorf("%w: frame flags %#02x", ErrProtocol, flags)
	}
	if flags&flagLong == 0 {
		size = uint64(r.buf[r.r+1])
		r.r += 2
		return flags, size, nil
	}
	if err := r.need(9); err != nil {
		return 0, 0, unexpected(err)
	}
	size = binary.BigEndian.Uint64(r.buf[r.r+1:])
	r.r += 9
	return flags, size, nil
}

// body appends size bytes to dst. dst grows with the received bytes, so an announced length alone
// costs nothing.
func (r *reader) body(dst []byte, size int) ([]byte, error) {
	n := min(size, r.w-r.r)
	dst = append(dst, r.buf[r.r:r.r+n]...)
	r.r += n
	for n < size {
		step := min(size-n, growStep)
		if step <= len(r.buf)/2 {
			if err := r.need(step); err != nil {
				return dst, unexpected(err)
			}
			dst = append(dst, r.buf[r.r:r.r+step]...)
			r.r += step
			n += step
			continue
		}
		dst = slices.Grow(dst, step)
		at := len(dst)
		if err := r.readFull(dst[at : at+step]); err != nil {
			return dst, unexpected(err)
		}
		dst = dst[:at+step]
		n += step
	}
	return dst, nil
}

// readFull fills p directly from the source. The buffer must be empty.
func (r *reader) readFull(p []byte) error {
	for len(p) > 0 {
		n, err := r.src.Read(p)
		p = p[n:]
		if err != nil && !errors.Is(err, errIdle) && len(p) > 0 {
			return err
		}
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads one message into m, and passes commands before or between its frames to onCommand.
func (r *reader) next(m *Message, onCommand func(body []byte) error) error {
	m.reset()
	r.msg = m
	for {
		flags, size, err := r.header()
		if err != nil {
			if len(m.ends) > 0 {
				return unexpected(err)
			}
			return err
		}
		if flags&flagCommand != 0 {
			if err := r.command(m, size, onCommand); err != nil {
				return err
			}
			continue
		}
		if size > uint64(r.limits.Frame) || size+uint64(len(m.buf)) > uint64(r.limits.Message) {
			return fmt.Errorf("%w: frame of %d bytes", ErrTooLarge, size)
		}
		if len(m.ends) == r.limits.Frames {
			return fmt.Errorf("%w: more than %d frames", ErrTooLarge, r.limits.Frames)
		}
		if m.buf, err = r.body(m.buf, int(size)); err != nil {
			return err
		}
		m.ends = append(m.ends, len(m.buf))
		if flags&flagMore == 0 {
			return nil
		}
	}
}

// command reads a command's body after the frames already in m, and removes it again.
func (r *reader) command(m *Message, size uint64, onCommand func([]byte) error) error {
	if size > maxCommand {
		return fmt.Errorf("%w: command of %d bytes", ErrTooLarge, size)
	}
	at := len(m.buf)
	var err error
	if m.buf, err = r.body(m.buf, int(size)); err != nil {
		return err
	}
	body := m.buf[at:]
	m.buf = m.buf[:at]
	return onCommand(body)
}

// appendFrame appends one frame to dst.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends a whole message to dst.
func appendMessage(dst []byte, frames [][]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

// appendCommand appends a command frame to dst.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(data))
	body = append(append(append(body, byte(len(name))), name...), data...)
	return appendFrame(dst, flagCommand, body)
}

// splitCommand returns a command's name and data.
func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || int(body[0]) > len(body)-1 {
		return "", nil, fmt.Errorf("%w: command without a name", ErrProtocol)
	}
	n := 1 + int(body[0])
	return commandName(body[1:n]), body[n:], nil
}

// commandName returns the name without allocating for the known ones.
func commandName(b []byte) string {
	switch string(b) {
	case cmdReady:
		return cmdReady
	case cmdError:
		return cmdError
	case cmdPing:
		return cmdPing
	case cmdPong:
		return cmdPong
	case cmdSubscribe:
		return cmdSubscribe
	case cmdCancel:
		return cmdCancel
	}
	return ""
}
