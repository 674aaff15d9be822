package commands

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker"
)

// TestPDAsPrinted: status prints roles, shares and pairs.
func TestPDAsPrinted(t *testing.T) {
	st := &server.PDStatus{
		Roles: map[string]int{"prefill": 2, "decode": 4, "unknown": 1},
		Revisions: []server.RevisionStatus{
			{Decode: 1}, {Revision: "a", Prefill: 2, Decode: 2, Complete: true}, {Revision: "b", Decode: 1, Encode: 1},
		},
		SplitCounts: picker.SplitCounts{
			Split: 30, Whole: 70, Computed: map[string]uint64{"first": 25, "alternate": 2, "decode": 3}, GainedS: 12.34, LostS: 1.26,
		},
		Share: .3,
		Pairs: []server.PairStatus{
			{Prefill: "p:1", Decode: "d:1", State: "transfer_failed", Failed: 3, Success: .42},
			{Prefill: "p:2", Decode: "d:1", State: "works", Worked: 27, Success: 1, AverageS: .25, Compared: 20},
		},
		More: 2,
	}
	const want = `prefill/decode: 4 decode, 2 prefill, 1 with an unknown role; 30 of 100 requests split (30%); prompts computed by prefill 25, another prefill 2, decode 3, not reported 0; first tokens gained 12.3 s, lost 1.3 s
revisions: without a label: 0 prefill, 1 decode (incomplete, no request is split); a: 2 prefill, 2 decode; b: 0 prefill, 1 decode, 1 encode (incomplete, no request is split)

PREFILL  DECODE  PAIR                  SPLIT  FAILED  SUCCESS  GAIN
p:1      d:1     off: transfer failed  3      3       42%      -
p:2      d:1     on                    27     0       100%     +250 ms
and 2 more pairs
`
	var b strings.Builder
	writePD(&b, st)
	if d := gocmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	b.Reset()
	if writePD(&b, nil); b.Len() > 0 {
		t.Errorf("a pool without roles prints %q", b.String())
	}
}
