package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// maxTries is how often one change is tried against concurrent writers of the same list.
const maxTries = 5

// errMoved means that an object has changed since the plan. A new plan follows.
var errMoved = errors.New("kube: the object has changed since it was read")

// writer writes our entries.
type writer struct {
	client *kubeapi.Client
	reader
	counts *counts
	group  string           // the pool of this group, as namespace/name; "": a hub
	self   *kubeapi.Account // owner of its imports; nil: not read yet
	denied bool             // it may not patch imports
}

// owner returns the service account that owns the imports of a namespace, or nil. Kubernetes deletes an
// import when its owners are uninstalled, because no process remains that would update it. An owner in
// another namespace would count as absent.
func (w *writer) owner(ctx context.Context, namespace string) (*kubeapi.Account, error) {
	if w.self == nil {
		self, err := w.client.Self(ctx)
		if err != nil {
			return nil, err
		}
		w.self = &self
	}
	if w.self.UID == "" || w.self.Namespace != namespace {
		return nil, nil
	}
	return w.self, nil
}

// parent sets our entry in a pool's status to want, or removes it if want is nil. It reads the
// list, changes our entry, and writes it with the version that was read. It reports whether it
// wrote anything.
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
		if fresh.entry.equals(want) && fresh.entries <= 1 {
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
	return false, fmt.Errorf("gave up after %d conflicting writes: %w", maxTries, errMoved)
}

func (w *writer) read(ctx context.Context, n Name) (pool, error) {
	var raw json.RawMessage
	if err := w.client.Get(ctx, pools, n.Namespace, n.Name, &raw); err != nil {
		return pool{}, err
	}
	return w.pool(raw)
}

// imported sets our entry of an import to want, or removes it if want is nil. have is the import as
// read, or nil.
func (w *writer) imported(ctx context.Context, n Name, have *import_, want *control) (err error) {
	at := kubeapi.Patch{Resource: imports, Namespace: n.Namespace, Name: n.Name, Manager: w.controller}
	switch {
	case want == nil && have.removable():
		err = w.client.Delete(ctx, at, have.uid, have.version)
		if kubeapi.IsConflict(err) {
			w.counts.conflicts.Inc()
			return errMoved // another controller has an entry there, or soon will
		}
		return w.wrote(err)
	case have == nil:
		owner, err := w.owner(ctx, n.Namespace)
		if err != nil {
			return err
		}
		err = w.client.Create(ctx, imports, n.Namespace, owned(w.object(n, w.notes()), owner))
		if err != nil && !kubeapi.IsConflict(err) {
			return err
		}
	}
	at.Sub = "status"
	o := w.object(n, nil)
	if want != nil { // an entry that is not applied is removed
		o["status"] = map[string]any{"controllers": []*control{want}}
	}
	return w.wrote(w.client.Apply(ctx, at, o))
}

// own makes this process's service account an owner of an import that has an entry of ours. Other owners
// stay. Without the permission the import is kept after an uninstall.
func (w *writer) own(ctx context.Context, have *import_) error {
	owner, err := w.owner(ctx, have.Namespace)
	if err != nil || owner == nil || w.denied || slices.Contains(have.owners, owner.UID) {
		return err
	}
	at := kubeapi.Patch{Resource: imports, Namespace: have.Namespace, Name: have.Name.Name, Manager: w.controller}
	o := owned(w.object(have.Name, nil), owner)
	o["metadata"].(map[string]any)["uid"] = have.uid // not another import of that name
	err = w.client.Apply(ctx, at, o)
	if w.denied = kubeapi.IsForbidden(err); w.denied || kubeapi.IsConflict(err) {
		return nil
	}
	return w.wrote(err)
}

// removable reports whether nothing remains in an import without our entry. One that another
// controller of Grapevine created and left is removed with our entry only: without one, its creator
// may be about to write its own.
func (i *import_) removable() bool {
	return i.others == 0 && (i.made || i.ours && i.entry != nil)
}

// notes are the annotations of a new import.
func (w *writer) notes() map[string]string {
	notes := map[string]string{noteMade: w.controller}
	if w.group != "" {
		notes[noteGroup] = w.group
	}
	return notes
}

// wrote counts a write. An object that is already gone needs none.
func (w *writer) wrote(err error) error {
	if err == nil {
		w.counts.writes.WithLabelValues("import").Inc()
	}
	if kubeapi.IsGone(err) {
		return errMoved
	}
	return err
}

// object returns an import without a status.
func (w *writer) object(n Name, notes map[string]string) map[string]any {
	m := map[string]any{"name": n.Name, "namespace": n.Namespace}
	if notes != nil {
		m["annotations"] = notes
	}
	return map[string]any{"apiVersion": imports.Group + "/" + imports.Version, "kind": kindImport, "metadata": m}
}

// writeProblem converts a write error to a reason for other clusters. It contains only the kind of
// error, no names or permissions of this cluster.
func writeProblem(err error) string {
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
	default: // temporary
		return ""
	}
}

// Reasons that affect all imports of a cluster.
const (
	problemAbsent    = "the kind " + kindImport + " is not installed"
	problemForbidden = "a right on " + kindImport + "s is missing"
)

// owned adds an owner to an object, unless it is nil.
func owned(object map[string]any, owner *kubeapi.Account) map[string]any {
	if owner != nil {
		object["metadata"].(map[string]any)["ownerReferences"] = []map[string]any{
			{"apiVersion": "v1", "kind": "ServiceAccount", "name": owner.Name, "uid": owner.UID},
		}
	}
	return object
}
