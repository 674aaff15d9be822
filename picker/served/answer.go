package served

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pathModels is the path at which clients list models.
const pathModels = "/v1/models"

// shown is a model as clients read it.
type shown struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	Length  int     `json:"max_model_len,omitempty"`
}

// Answer returns the response to a client's GET of a path, based on the models that the pool's
// endpoints serve together: the list of all models, or a single model. It returns false for other
// paths and methods, and if nothing is known. It also returns false for an unlisted model that some
// engine may still serve, so that an engine answers the request. since is the reported creation
// time of models.
func Answer(s *endpoint.Snapshot, method, path string, since time.Time) (status int, body []byte, ok bool) {
	at := strings.LastIndex(path, pathModels)
	if method != http.MethodGet || at < 0 || len(s.Models()) == 0 {
		return 0, nil, false
	}
	rest := path[at+len(pathModels):]
	if rest == "" || rest == "/" {
		return http.StatusOK, allModels(s, since), true
	}
	name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	if err != nil || rest[0] != '/' {
		return 0, nil, false
	}
	for _, m := range s.Models() {
		if m.Name == name {
			return http.StatusOK, marshal(show(s, m, since)), true
		}
	}
	if !refusedByAll(s) {
		return 0, nil, false
	}
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	e.Error.Message, e.Error.Type = "The model `"+budget.PrintableName(name)+"` does not exist.", "invalid_request_error"
	e.Error.Code = request.ReasonModelNotFound.String()
	return http.StatusNotFound, marshal(e), true
}

// refusedByAll reports whether every engine has a list and rejects all other names.
func refusedByAll(s *endpoint.Snapshot) bool {
	return !slices.ContainsFunc(s.Endpoints, func(ep *endpoint.Endpoint) bool {
		l, _ := ep.EngineModels()
		return l == nil || !l.Rejects
	})
}

func allModels(s *endpoint.Snapshot, since time.Time) []byte {
	list := make([]shown, 0, len(s.Models()))
	for _, m := range s.Models() {
		list = append(list, show(s, m, since))
	}
	return marshal(struct {
		Object string  `json:"object"`
		Data   []shown `json:"data"`
	}{"list", list})
}

func show(s *endpoint.Snapshot, m endpoint.Model, since time.Time) shown {
	v := shown{ID: m.Name, Object: "model", Created: since.Unix(), OwnedBy: "grapevine", Root: m.Name, Length: shortest(s, m.Name)}
	if m.Parent != "" {
		v.Parent = &m.Parent
	}
	return v
}

// shortest returns the smallest length limit of a model among its endpoints, 0 if none reports one.
func shortest(s *endpoint.Snapshot, name string) (limit int) {
	for _, at := range s.Serving(name) {
		if l, _ := s.Endpoints[at].EngineModels(); l != nil {
			if n := l.Length(name); n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
		}
	}
	return limit
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers always marshal
		return nil
	}
	return b
}
