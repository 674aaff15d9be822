package poolbus

import (
	"bytes"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	pool, frame, err := splitMessage(appendMessage(nil, "llama", []byte("frame")))
	if err != nil || string(pool) != "llama" || string(frame) != "frame" {
		t.Errorf("splitMessage() = %q, %q, %v", pool, frame, err)
	}
	for name, b := range map[string][]byte{"nothing": nil, "name without its end": {3, 'a', 'b'}, "longer name than any": append([]byte{254}, make([]byte, 300)...)} {
		if _, _, err := splitMessage(b); err == nil {
			t.Errorf("%s: splitMessage() succeeds", name)
		}
	}
	b := appendAnnouncement(nil, []string{"a", "b"})
	got, err := readAnnouncement(b[1:])
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("readAnnouncement() = %q, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "another version": {2}, "empty name": {announceVersion, 0}, "cut name": {announceVersion, 2, 'a'},
		"too many": append([]byte{announceVersion}, bytes.Repeat([]byte{1, 'a'}, MaxPools+1)...),
	} {
		if _, err := readAnnouncement(b); err == nil {
			t.Errorf("%s: readAnnouncement() succeeds", name)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(appendMessage(nil, "llama", []byte("frame")))
	f.Add(appendAnnouncement(nil, []string{"llama", "qwen"}))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		pool, frame, err := splitMessage(b)
		if err != nil {
			return
		}
		if again := appendMessage(nil, string(pool), frame); !bytes.Equal(again, b) {
			t.Errorf("message %x is %x when written again", b, again)
		}
		if len(pool) > 0 {
			return
		}
		names, err := readAnnouncement(frame)
		if err != nil {
			return
		}
		if !slices.IsSorted(names) || len(names) > MaxPools || slices.Contains(names, "") {
			t.Errorf("names %q are not sorted, too many or empty", names)
		}
	})
}

// TestWorkOfAnnouncements: the work for an announcement is proportional to its length.
func TestWorkOfAnnouncements(t *testing.T) {
	for name, text := range map[string][2]string{"names": {"\x01", "\x01a"}, "a long name": {"\x01\xfd", "a"}} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, text[0], text[1], "")
			return func() { _, _ = readAnnouncement(b) }
		})
	}
}
