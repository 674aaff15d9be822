package programs

import (
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// Default headers, in lower case: x-grapevine-program, and names that agents use.
var (
	Headers = []string{"x-grapevine-program", "x-program-id", "x-agent-run-id", "x-claude-code-session-id"}
	Parents = []string{"x-parent-session-id"}
)

// Config is how programs are identified and limited.
type Config struct {
	// Headers name the program. The first present one counts, in lower case.
	Headers []string
	// Parents name the session that started the request's session.
	Parents []string
	Share   float64       // of the engines' KV memory that running programs may fill
	MaxWait time.Duration // for which a request is kept at most
}

// Identify returns the turn of a request. ok is false if nothing trustworthy identifies a program. A
// program is named by a header, by the parent of its session, by the session, or by the response that it
// continues.
func (c *Config) Identify(r *request.Request) (t Turn, ok bool) {
	if r.Unnamed || r.Kind == request.KindOther || r.Kind == request.KindEmbeddings {
		return Turn{}, false
	}
	t.Session, t.Previous = sessions.KeyIn(r.Tenant, r.Session), sessions.ResponseKey(r.Previous)
	if t.Session == 0 {
		t.Session = t.Previous
	}
	name := first(r, c.Headers)
	if name == "" {
		name = first(r, c.Parents)
	}
	if t.Program = sessions.KeyIn(r.Tenant, name); t.Program == 0 {
		t.Program = t.Session
	}
	if t.Session == 0 {
		t.Session = t.Program
	}
	if t.Program == 0 {
		return Turn{}, false
	}
	t.Tenant, t.Tokens = sessions.KeyOf(r.FairnessID), max(r.InputTokens, 1)
	most := c.MaxWait
	for _, limit := range [...]time.Duration{r.QueueTTL - r.Waited, r.MaxWait} {
		if limit > 0 {
			most = min(most, limit/2)
		}
	}
	t.Most = int64(most)
	return t, true
}

// first returns the first header that a request has.
func first(r *request.Request, names []string) string {
	const longest = 1024
	if r.Headers == nil {
		return ""
	}
	for _, name := range names {
		if v := strings.TrimSpace(r.Headers.Get(name)); v != "" && len(v) <= longest {
			return v
		}
	}
	return ""
}
