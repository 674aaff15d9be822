package request

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
)

const (
	formType     = "multipart/form-data"
	maxFormParts = 1000 // same limit as engines
	maxFormModel = 4096 // bytes
)

// takeForm reads the model from a multipart form, as used for audio and image uploads. The last
// model field counts, as in engines. A truncated form is read as far as available. Models in forms
// are never rewritten.
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
