package commands

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/grapevine-epp/grapevine/internal/server"
)

// writePD prints roles, the share of split requests and a row for each pair. st is nil
// for pools without roles.
func writePD(w io.Writer, st *server.PDStatus) {
	if st == nil {
		return
	}
	fmt.Fprintf(w, "prefill/decode: %s\n", strings.Join(pdParts(st), "; "))
	if len(st.Revisions) > 0 {
		fmt.Fprintf(w, "revisions: %s\n", strings.Join(revisionParts(st.Revisions), "; "))
	}
	if len(st.Pairs) == 0 {
		return
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\nPREFILL\tDECODE\tPAIR\tSPLIT\tFAILED\tSUCCESS\tGAIN")
	for i := range st.Pairs {
		p := &st.Pairs[i]
		gain := "-"
		if p.Compared > 0 {
			gain = fmt.Sprintf("%+.0f ms", 1000*p.AverageS)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%.0f%%\t%s\n", p.Prefill, p.Decode, pairState(p), p.Worked+p.Failed, p.Failed, 100*p.Success, gain)
	}
	tab.Flush()
	if st.More > 0 {
		fmt.Fprintf(w, "and %d more pairs\n", st.More)
	}
}

// revisionParts describes revisions.
func revisionParts(list []server.RevisionStatus) (parts []string) {
	for _, r := range list {
		name := r.Revision
		if name == "" {
			name = "without a label"
		}
		text := fmt.Sprintf("%s: %d prefill, %d decode", name, r.Prefill, r.Decode)
		if r.Encode > 0 {
			text += fmt.Sprintf(", %d encode", r.Encode)
		}
		if !r.Complete {
			text += " (incomplete, no request is split)"
		}
		parts = append(parts, text)
	}
	return parts
}

// pdParts returns the parts of the summary.
func pdParts(st *server.PDStatus) []string {
	var roles []string
	for _, role := range slices.Sorted(maps.Keys(st.Roles)) {
		word := role
		switch role {
		case "none":
			word = "without a role"
		case "unknown":
			word = "with an unknown role"
		}
		roles = append(roles, fmt.Sprintf("%d %s", st.Roles[role], word))
	}
	parts := []string{strings.Join(roles, ", ")}
	if n := st.Split + st.Whole; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d requests split (%.0f%%)", st.Split, n, 100*st.Share))
	}
	if st.Split > 0 {
		c := st.Computed
		parts = append(parts,
			fmt.Sprintf("prompts computed by prefill %d, another prefill %d, decode %d, not reported %d", c["first"], c["alternate"], c["decode"], c["unreported"]),
			fmt.Sprintf("first tokens gained %.1f s, lost %.1f s", st.GainedS, st.LostS))
	}
	return parts
}

// pairState describes whether a pair is in use, and why not.
func pairState(p *server.PairStatus) string {
	if p.State == "works" {
		return "on"
	}
	return "off: " + strings.ReplaceAll(p.State, "_", " ")
}
