package request

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
)

const (
	formType     = "multipart/form-data"
	maxFormParts = 1000 // as many as engines take
	maxFormModel = 4096 // bytes
)

// takeForm takes the model of a body that is a form, as uploads of sound and images are.
// Of several the last one counts, as engines do. A form that is cut counts as far as it is
// there. Its model stays as it is: there is no rewriting in forms.
func takeForm(r *Request) {
	if r.Headers == nil || len(r.Body) == 0 {
		return
	}
	kind, params, err := mime.ParseMediaType(r.Headers.Get("content-type"))
	if err != nil || kind != formType || params["boundary"] == "" {
		return
	}
	form := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	model := ""
	for range maxFormParts {
		part, err := form.NextRawPart()
		if err != nil {
			break
		}
		if part.FormName() != "model" || part.FileName() != "" {
			continue
		}
		if value, err := io.ReadAll(io.LimitReader(part, maxFormModel+1)); err == nil && len(value) <= maxFormModel {
			model = string(value)
		}
	}
	r.Model, r.Target, r.Fixed = model, model, true
}
