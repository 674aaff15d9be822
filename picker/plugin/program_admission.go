package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/programs"
)

type programParams struct {
	ProgramHeaders []string `json:"programHeaders,omitempty"`
	ParentHeaders  []string `json:"parentHeaders,omitempty"`
	Share          float64  `json:"share,omitempty"`
	MaxWait        string   `json:"maxWait,omitempty"`
}

// newProgramAdmission configures how agent runs are recognized and admitted.
func newProgramAdmission(p programParams) (Plugin, error) {
	c := &programs.Config{Share: p.Share}
	var empty error
	lower := func(name string, headers []string) (out []string) {
		for i, h := range headers {
			if h = strings.ToLower(strings.TrimSpace(h)); h == "" {
				empty = Require(false, fmt.Sprintf("%s[%d]", name, i), "must not be empty")
			}
			out = append(out, h)
		}
		return out
	}
	c.Headers = append(lower("programHeaders", p.ProgramHeaders), slices.Clone(programs.Headers)...)
	c.Parents = append(lower("parentHeaders", p.ParentHeaders), slices.Clone(programs.Parents)...)
	c.MaxWait, _ = time.ParseDuration(p.MaxWait)
	return Plugin{Producer: &Producer{Programs: c}}, Faults(empty,
		Require(p.Share > 0 && p.Share <= 4, "share", "must be above 0 and at most 4"),
		Duration("maxWait", p.MaxWait))
}
