package bodies

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
)

// TestRoomIsTaken: the budget is charged for the buffer reserved for an announced body, not for the
// received part. For large bodies the buffer is at most twice the received part.
func TestRoomIsTaken(t *testing.T) {
	b := memory.New(1 << 30)
	holders, in := memory.NewHolders(b, memory.Bodies), new(Intake)
	holders.Begin(&in.held, nil)
	for _, come := range []int{1, firstRead, 100 << 10, 2 << 20, 5<<20 + 1} {
		got, err := in.ReadAll(io.MultiReader(strings.NewReader(strings.Repeat("x", come)), broken{}), 100<<20)
		if err == nil || b.Used(memory.Bodies) != int64(cap(got)) || cap(got) > max(2*come, soonRoom) {
			t.Errorf("%d bytes came, %d are reserved and %d taken, %v", come, cap(got), b.Used(memory.Bodies), err)
		}
		in.held.End()
	}
}

// TestReadAll reads bodies of all sizes, with and without an announced length. They arrive at once,
// byte by byte, or together with their end.
func TestReadAll(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 3*firstRead + 7} {
		text := strings.Repeat("x", size)
		for _, announced := range []int64{-1, 0, int64(size) - 1, int64(size), int64(size) + 9} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
				got, err := new(Intake).ReadAll(r, announced)
				if string(got) != text || err != nil {
					t.Errorf("%d bytes of %d, announced %d: %v", len(got), size, announced, err)
				}
				if announced == int64(size) && cap(got) > max(size+1, 1)+firstRead/2 {
					t.Errorf("%d bytes are held for %d", cap(got), size)
				}
			}
		}
	}
	if _, err := new(Intake).ReadAll(io.MultiReader(strings.NewReader("x"), broken{}), 5); err == nil {
		t.Error("a body that broke off was taken for whole")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken off") }
