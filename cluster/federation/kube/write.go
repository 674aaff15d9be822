package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// maxTries bounds how often one change is tried against writers of the same list.
const maxTries = 5

// errMoved says that an object is not what a plan was made for: another is under way.
var errMoved = errors.New("kube: the object changed meanwhile")

// writer writes our entries.
type writer struct {
	client *kubeapi.Client
	reader
	counts *counts
}

// parent has a pool's status say want, nil for nothing of ours: read, change our
// entry in the list, write under the version that was read. It reports whether
// it wrote anything.
func (w *writer) parent(ctx context.Context, was *pool, want *parent) (wrote bool, err error) {
	for range maxTries {
		var fresh pool
		if fresh, err = w.read(ctx, was.Name); err != nil {
			if kubeapi.IsGone(err) {
				return false, nil
			}
			return false, err
		}
		if fresh.uid != was.uid || fresh.asked != was.asked || fresh.export != was.export || fresh.generation != was.generation || fresh.deleted != was.deleted {
			return false, errMoved
		}
		if fresh.entry.says(want) && fresh.entries <= 1 {
			return false, nil
		}
		list, err := w.withEntry(fresh.parents, want)
		if err != nil {
			return false, err
		}
		err = w.client.Merge(ctx, kubeapi.Patch{Resource: pools, Namespace: was.Namespace, Name: was.Name.Name, Sub: "status", Manager: w.controller}, map[string]any{
			"metadata": map[string]any{"resourceVersion": fresh.version}, "status": map[string]any{"parents": list},
		})
		if err == nil {
			w.counts.writes.WithLabelValues("pool").Inc()
			return true, nil
		}
		if !kubeapi.IsConflict(err) {
			return false, err
		}
		w.counts.conflicts.Inc()
	}
	return false, fmt.Errorf("%d others wrote first: %w", maxTries, errMoved)
}

func (w *writer) read(ctx context.Context, n Name) (pool, error) {
	var raw json.RawMessage
	if err := w.client.Get(ctx, pools, n.Namespace, n.Name, &raw); err != nil {
		return pool{}, err
	}
	return w.pool(raw)
}

// imported has an import say want, nil for nothing of ours. have is the import as
// it was read, nil for none.
func (w *writer) imported(ctx context.Context, n Name, have *import_, want *control) (err error) {
	at := kubeapi.Patch{Resource: imports, Namespace: n.Namespace, Name: n.Name, Manager: w.controller}
	switch {
	case want == nil && have.made && have.others == 0:
		err = w.client.Delete(ctx, at, have.uid, have.version)
		if kubeapi.IsConflict(err) {
			w.counts.conflicts.Inc()
			return errMoved // somebody has an entry there, or soon will
		}
		return w.wrote(err)
	case have == nil:
		err = w.client.Create(ctx, imports, n.Namespace, w.object(n, map[string]string{noteMade: w.controller}))
		if err != nil && !kubeapi.IsConflict(err) {
			return err
		}
	}
	at.Sub = "status"
	o := w.object(n, nil)
	if want != nil { // an entry that is not applied is withdrawn
		o["status"] = map[string]any{"controllers": []*control{want}}
	}
	return w.wrote(w.client.Apply(ctx, at, o))
}

// wrote counts a write. What is gone needs none.
func (w *writer) wrote(err error) error {
	if err == nil {
		w.counts.writes.WithLabelValues("import").Inc()
	}
	if kubeapi.IsGone(err) {
		return errMoved
	}
	return err
}

// object is an import without a status.
func (w *writer) object(n Name, notes map[string]string) map[string]any {
	m := map[string]any{"name": n.Name, "namespace": n.Namespace}
	if notes != nil {
		m["annotations"] = notes
	}
	return map[string]any{"apiVersion": imports.Group + "/" + imports.Version, "kind": kindImport, "metadata": m}
}

// toldProblem words for other clusters why an import could not be written. They
// learn the kind of reason, and nothing of this cluster's rights and names.
func toldProblem(err error) string {
	switch code := kubeapi.CodeOf(err); {
	case err == nil, errors.Is(err, errMoved):
		return ""
	case kubeapi.IsAbsent(err):
		return problemAbsent
	case code == http.StatusNotFound:
		return "there is no such namespace"
	case code == http.StatusForbidden:
		return problemForbidden
	case code == http.StatusUnprocessableEntity:
		return "the API server refuses the import"
	default: // passes
		return ""
	}
}

// Reasons that concern all imports of a cluster.
const (
	problemAbsent    = "the kind " + kindImport + " is not installed"
	problemForbidden = "a right on " + kindImport + "s is missing"
)
