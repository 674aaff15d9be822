package gate

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Source is where the flow of a request is read that names none by the fairness header: one
// of the constants, or FromHeader and the name of a header in lower case.
type Source string

// Sources that are no headers. A session, a user and a header are what the client says.
const (
	FromSession     Source = "session"
	FromUser        Source = "user"  // of the body
	FromModel       Source = "model" // as the client names it
	FromCertificate Source = "certificate"
)

// FromHeader begins a Source that is a header.
const FromHeader = "header:"

// certificates is the header in which a proxy says which certificate its client showed. The
// last element is that of the nearest proxy.
const certificates = "x-forwarded-client-cert"

const defaultFlow = "default-flow"

// identify returns the flow of a request: by its fairness id, else by the first of the sources
// that has something to say. Of clients that are not believed to name their flow, only what
// they did not choose to name counts.
func identify(r *request.Request, sources []Source) string {
	if r.FairnessID != "" {
		return rules.Name(r.FairnessID)
	}
	for _, s := range sources {
		if id := s.of(r); id != "" {
			return rules.Name(id)
		}
	}
	return defaultFlow
}

func (s Source) of(r *request.Request) string {
	switch {
	case s == FromModel:
		return r.Model
	case s == FromCertificate:
		return certificate(r)
	case r.Unnamed:
		return ""
	case s == FromSession:
		return r.Session
	case s == FromUser:
		return r.User
	}
	return value(r, strings.TrimPrefix(string(s), FromHeader))
}

func value(r *request.Request, header string) string {
	const longest = 1024
	if r.Headers == nil {
		return ""
	}
	v := r.Headers.Get(header)
	if len(v) > longest {
		return ""
	}
	return v
}

// certificate returns whom the client's certificate names: its URI, else its subject, else
// its hash.
func certificate(r *request.Request) string {
	const longest = 16 << 10
	if r.Headers == nil {
		return ""
	}
	v := r.Headers.Get(certificates)
	if len(v) > longest {
		return ""
	}
	found := [3]string{}
	for v != "" {
		var pair string
		var last bool
		pair, v, last = cutField(v)
		key, text, _ := strings.Cut(pair, "=")
		for i, want := range [...]string{"uri", "subject", "hash"} {
			if strings.EqualFold(strings.TrimSpace(key), want) && found[i] == "" {
				found[i] = strings.Trim(text, `"`)
			}
		}
		if last && v != "" {
			found = [3]string{} // an element of a proxy further away
		}
	}
	for _, id := range found {
		if id != "" {
			return id
		}
	}
	return ""
}

// cutField returns the first field of a list of elements, what comes after it, and whether
// it is the last of its element. Separators within quotes are none.
func cutField(v string) (field, rest string, last bool) {
	quoted := false
	for i := range len(v) {
		switch c := v[i]; {
		case c == '\\' && quoted:
		case c == '"' && (i == 0 || v[i-1] != '\\'):
			quoted = !quoted
		case !quoted && (c == ';' || c == ','):
			return v[:i], v[i+1:], c == ','
		}
	}
	return v, "", true
}
