package request

import (
	"bytes"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

type formHeaders map[string]string

func (h formHeaders) Get(name string) string { return h[name] }

const boundary = "----x42"

// upload writes parts, each a name, "name;file" for an upload, and a value.
func upload(parts ...[2]string) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		name, file, isFile := strings.Cut(p[0], ";")
		b.WriteString("--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"")
		if isFile {
			b.WriteString("; filename=\"" + file + "\"\r\nContent-Type: audio/wav")
		}
		b.WriteString("\r\n\r\n" + p[1] + "\r\n")
	}
	b.WriteString("--" + boundary + "--\r\n")
	return b.Bytes()
}

func TestForm(t *testing.T) {
	sound := strings.Repeat("\x00\xff--\r\n\r\n----x4", 1000)
	headers := formHeaders{"content-type": `multipart/form-data; boundary="` + boundary + `"`, HeaderModelRewrite: "other"}
	f := func(name string, body []byte, want string) {
		t.Helper()
		for _, parse := range []func(*Request){func(r *Request) {
			if err := Parse(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}, ParsePrefix} {
			r := &Request{Path: "/v1/audio/transcriptions", Headers: headers, Body: body}
			if parse(r); r.Model != want || r.Target != want || r.Kind != KindOther || !r.Fixed {
				t.Errorf("%s: model %.40q, target %.40q, kind %v, fixed %v, want %q", name, r.Model, r.Target, r.Kind, r.Fixed, want)
			}
		}
	}
	model, file := [2]string{"model", "whisper"}, [2]string{"file;a.wav", sound}
	f("before the file", upload(model, file), "whisper")
	f("after the file", upload(file, model), "whisper")
	f("the last one", upload(model, file, [2]string{"model", "large"}), "large")
	f("none", upload(file), "")
	f("a file of that name", upload([2]string{"model;whisper", "x"}), "")
	f("too long", upload([2]string{"model", strings.Repeat("m", maxFormModel+1)}), "")
	f("cut in the file", upload(model, file)[:3000], "whisper")
	f("too many parts", upload(append(make([][2]string, maxFormParts), model)...), "")

	for name, r := range map[string]*Request{
		"no boundary":  {Headers: formHeaders{"content-type": "multipart/form-data"}, Body: upload(model)},
		"another type": {Headers: formHeaders{"content-type": "text/plain"}, Body: upload(model)},
		"no headers":   {Body: upload(model)},
	} {
		r.Path = "/v1/audio/transcriptions"
		if err := Parse(r); err != nil || r.Model != "" {
			t.Errorf("%s: model %q, %v", name, r.Model, err)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(upload([2]string{"file;a", "x"}, [2]string{"model", "m"}))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte) {
		r := &Request{Path: "/v1/images/edits", Headers: formHeaders{"content-type": "multipart/form-data; boundary=" + boundary}, Body: body}
		if err := Parse(r); err != nil || !bytes.Contains(body, []byte(r.Model)) && r.Fixed {
			t.Fatalf("%v, model %q", err, r.Model)
		}
	})
}
