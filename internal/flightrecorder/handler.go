package flightrecorder

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// ServeHTTP makes a record for a POST and answers with it. For a GET it lists the stored records,
// or answers with the one that the path value "name" names. Its caller must admit authorized
// clients only: a record stops the process for milliseconds, and shows how requests were decided.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	switch {
	case req.Method == http.MethodPost:
		rec, content, err := r.Record(req.Context())
		switch {
		case errors.Is(err, ErrBusy):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			send(w, rec.Name, content)
		}
	case name == "":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.store.records()) // the client may have disconnected
	default:
		content, ok := r.store.read(name)
		if !ok {
			http.Error(w, "no such record", http.StatusNotFound)
			return
		}
		send(w, name, content)
	}
}

// send answers with a record. Only the recorder's own names reach the header.
func send(w http.ResponseWriter, name string, content []byte) {
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // the client may have disconnected
}
