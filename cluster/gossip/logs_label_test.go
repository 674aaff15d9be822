package gossip

import (
	"log/slog"
	"testing"
)

// TestLabelEvidence: only another label counts as a refusal because of the label. Lines about
// connections that time out or end mention the label's header too.
func TestLabelEvidence(t *testing.T) {
	for line, want := range map[string]uint64{
		`[ERR] memberlist: discarding stream with unacceptable label "other": from=10.0.0.1:7946`:                            1,
		`[ERR] memberlist: discarding packet with unacceptable label "other": from=10.0.0.1:7946`:                            1,
		"[ERR] memberlist: failed to receive and remove the stream label header: read tcp 10.0.0.1:7946: i/o timeout from=x": 0,
		"[ERR] memberlist: failed to receive and remove the stream label header: EOF from=10.0.0.1:7946":                     0,
		"[WARN] memberlist: failed to add label header to stream: write tcp 10.0.0.1:7946: broken pipe":                      0,
	} {
		l := newMemberlistLog(slog.New(slog.DiscardHandler))
		if _, err := l.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if refused, _ := l.state(); refused[refusedLabel] != want {
			t.Errorf("%s: %d refusals because of the label, want %d", line, refused[refusedLabel], want)
		}
	}
}
