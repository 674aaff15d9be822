package budget

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReadAnnounced reads texts of all sizes, in one piece, byte by byte and with EOF, and texts
// shorter than announced.
func TestReadAnnounced(t *testing.T) {
	for _, n := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 5*firstRead + 3} {
		text := strings.Repeat("x", n)
		for _, r := range []io.Reader{
			strings.NewReader(text + "y"), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text)),
		} {
			if b, err := ReadAnnounced(r, n); err != nil || string(b) != text || cap(b) > max(n, firstRead) {
				t.Errorf("%d bytes: %d came, room for %d, %v", n, len(b), cap(b), err)
			}
		}
		if b, err := ReadAnnounced(strings.NewReader(text), n+1); !errors.Is(err, io.ErrUnexpectedEOF) || string(b) != text {
			t.Errorf("%d of %d bytes: %d came, %v", n, n+1, len(b), err)
		}
	}
	if _, err := ReadAnnounced(io.MultiReader(bytes.NewReader([]byte("x")), iotest.ErrReader(io.ErrClosedPipe)), 2); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a connection that breaks: %v", err)
	}
}

// TestReadAnnouncedTakesWhatCame: the capacity follows the received data, not the announced length.
func TestReadAnnouncedTakesWhatCame(t *testing.T) {
	for _, came := range []int{0, 1, firstRead, 3 * firstRead, 100 * firstRead} {
		b, err := ReadAnnounced(strings.NewReader(strings.Repeat("x", came)), 1<<30)
		if err == nil || len(b) != came || cap(b) > max(firstRead, 2*came) {
			t.Errorf("%d bytes of 1 GiB came: room for %d, %v", came, cap(b), err)
		}
	}
}
