package extproc_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// modelAnswers are answers, by content type, in which an engine names the requested model.
var modelAnswers = map[string]func(model string) string{
	"application/json": func(m string) string {
		return fmt.Sprintf(`{"id":"1","model":%q,"choices":[{"message":{"content":"\"model\":\"internal\" %s"}}]}`, m, strings.Repeat("word ", 40_000))
	},
	"text/event-stream": func(m string) string {
		var out strings.Builder
		for i := range 50 {
			fmt.Fprintf(&out, "data: {\"id\":\"1\",\"model\":%q,\"choices\":[{\"delta\":{\"content\":\"token %d\"}}]}\n\n", m, i)
		}
		return out.String() + "data: [DONE]\n\n"
	},
}

// answerModel answers in one of these forms; a stream is split at arbitrary bytes.
func answerModel(w http.ResponseWriter, body []byte, form string) {
	var asked struct{ Model string }
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := modelAnswers[form](asked.Model)
	w.Header().Set("content-type", form)
	if form == "application/json" {
		w.Header().Set("content-length", fmt.Sprint(len(answer)))
		_, _ = io.WriteString(w, answer)
		return
	}
	for i := 0; i < len(answer); i += 37 {
		_, _ = io.WriteString(w, answer[i:min(i+37, len(answer))])
		w.(http.Flusher).Flush()
	}
}

// TestEnvoyAnswerModel: answers contain the client's name of the model in every mode that permits
// changes, and the rest is unchanged.
func TestEnvoyAnswerModel(t *testing.T) {
	for _, s := range shapes() {
		if s.blind {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override, AnswerModel: extproc.AnswerModelClient}})
			r.book.rename = "internal/name"
			want := "chat"
			if s.name == "resilient without override" || s.name == "duplex request only" || strings.HasSuffix(s.name, " NONE") {
				want = "internal/name"
			}
			for form := range modelAnswers {
				r.checkModel(form, "chat", want)
				r.checkModel(form, "internal/name", "internal/name")
			}
			r.book.settle(t)
			r.clean()
		})
	}
}

// checkModel sends a request for a model and expects an answer that names want.
func (r *rig) checkModel(form, model, want string) {
	r.t.Helper()
	resp, got, err := r.do(r.t.Context(), call{size: 500, model: model, header: map[string]string{"x-model": form}})
	if err != nil {
		r.t.Errorf("%s: %v", form, err)
		return
	}
	if answer := modelAnswers[form](want); string(got) != answer {
		r.t.Errorf("%s: status %d, %d bytes that begin with %.90q, want %d with %.90q", form, resp.StatusCode, len(got), got, len(answer), answer)
	}
}

// TestEnvoyAnswerModelAuto: by default only answers in full duplex are changed. In the resilient
// kind, answers do not pass through the picker.
func TestEnvoyAnswerModelAuto(t *testing.T) {
	for i, want := range []string{"chat", "internal"} {
		s := shapes()[i]
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			r.book.rename = "internal"
			r.checkModel("text/event-stream", "chat", want)
			r.book.settle(t)
			r.clean()
		})
	}
}

// TestEnvoyRewriteUnseen: if models are rewritten, the picker requests bodies from a proxy that
// withholds them. If this is impossible, a client whose model would be rewritten gets an error.
func TestEnvoyRewriteUnseen(t *testing.T) {
	for _, s := range shapes() {
		if !s.blind {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override, AnswerModel: extproc.AnswerModelEngine,
				Rewrites: func() bool { return s.override }}})
			r.book.rename = "internal"
			if s.override {
				r.checkModel("application/json", "chat", "internal")
				r.checkModel("text/event-stream", "chat", "internal")
				r.book.settle(t)
				r.clean()
				return
			}
			resp, _, err := r.do(t.Context(), call{size: 500, model: "chat", header: map[string]string{request.HeaderModelRewrite: "internal"}})
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("answer %v, %v, want 400", resp, err)
			}
		})
	}
}

// TestEnvoyPriority: if the proxy permits changes of bodies, engines get the decision's priority
// and a body of the new length. Otherwise the body is unchanged.
func TestEnvoyPriority(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			r.book.priority = 1_700_000_016_000
			resp, _, err := r.do(t.Context(), call{size: 500, model: "chat"})
			if err != nil {
				t.Fatal(err)
			}
			want := string(requestBody(500, "chat"))
			if !s.blind {
				want = strings.Replace(want, `"chat"`, `"chat","priority":1700000016000`, 1)
			}
			if got := resp.Header.Get("x-body-sha"); got != digest([]byte(want)) {
				t.Errorf("the engine saw another body of %s bytes, want %s", resp.Header.Get("x-body-length"), want)
			}
			r.book.settle(t)
			r.clean()
		})
	}
}
