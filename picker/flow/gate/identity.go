package gate

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Source is where the flow of a request without a fairness header is read from: one of the
// constants, or FromHeader plus a lower-case header name.
type Source string

// Sources other than headers. Session, user and headers are chosen by the client.
const (
	FromSession     Source = "session"
	FromUser        Source = "user"  // in the body
	FromModel       Source = "model" // as named by the client
	FromCertificate Source = "certificate"
)

// FromHeader is the prefix of a Source that is a header.
const FromHeader = "header:"

// certificates is the header in which a proxy passes its client's certificate. The nearest proxy
// adds the last element.
const certificates = "x-forwarded-client-cert"

const defaultFlow = "default-flow"

// identify returns the flow of a request: its fairness ID, or the first source with a value. For
// clients that are not trusted to name their flow, only sources they cannot choose count.
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

// certificate returns the identity in the client's certificate: the first that exists of its URI,
// its subject and its hash.
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
			found = [3]string{} // this was an element of a more distant proxy
		}
	}
	for _, id := range found {
		if id != "" {
			return id
		}
	}
	return ""
}

// cutField returns the first field of a list of elements, the rest, and whether it is the last
// field of its element. Separators in quotes do not count.
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
