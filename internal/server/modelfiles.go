package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/server/roots"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	modelsPace = 50 * time.Millisecond // between looks at the pool's models, until all lists have been read
	modelsSlow = 500 * time.Millisecond
	// listsWait is how long a starting replica waits for the model lists of its engines.
	listsWait = 3 * time.Second
	// modelKeep is how long a model is kept after the last engine that reported it. Engines that
	// restart report none for a while.
	modelKeep = 10 * time.Minute
)

// modelFinderOptions are what a modelFinder connects.
type modelFinderOptions struct {
	Source  modelfiles.Options // without Changed and Group
	Peers   *peerFiles         // nil without a group
	Pool    *endpoint.Pool     // its engines report the models
	Models  *prefix.Models     // uses the files
	Started time.Time          // of the process
	Timeout time.Duration      // time from Started in which a search delays readiness
}

// modelFinder connects the models that engines report with their files. It is safe for concurrent use.
type modelFinder struct {
	o      modelFinderOptions
	off    bool // only configured models are used
	source *modelfiles.Source
	groups atomic.Pointer[[]roots.Group]     // models in use by the pool
	roots  atomic.Pointer[map[string]string] // root by served name
	listed atomic.Bool                       // the lists of all engines have been read once, or listsWait has passed
	used   atomic.Int64                      // number of found models that are loaded or being loaded
	wake   chan struct{}                     // files have been found
	seen   map[string]seenModel              // by root; owned by run
}

// seenModel is a model that engines reported.
type seenModel struct {
	group roots.Group
	at    time.Time // of the last report
}

// openModelFinder opens the source of model files. It starts no search.
func openModelFinder(o modelFinderOptions) (f *modelFinder, err error) {
	f = &modelFinder{o: o, wake: make(chan struct{}, 1), seen: map[string]seenModel{}}
	f.groups.Store(new([]roots.Group))
	f.roots.Store(&map[string]string{})
	src := o.Source
	src.Mode = cmp.Or(src.Mode, modelfiles.ModeOff)
	f.off = src.Mode == modelfiles.ModeOff
	src.Changed = func() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if o.Peers != nil && !f.off {
		src.Group = o.Peers
	}
	if f.source, err = modelfiles.Open(src); err != nil {
		return nil, err
	}
	return f, nil
}

// close stops all searches.
func (f *modelFinder) close() {
	if f != nil {
		f.source.Close()
	}
}

// run keeps the wanted models and those in use up to date, until ctx ends. It calls changed after
// each change, because the vocabularies of event streams may have changed.
func (f *modelFinder) run(ctx context.Context, watch *watchdog.Loop, changed func()) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var last *endpoint.Snapshot
	var used time.Time
	for files := false; ; {
		watch.Working()
		now, first := f.o.Pool.Snapshot(), false
		if !f.listed.Load() { // read before the lists are used, because lists may arrive during the call
			first = allListed(now) || time.Since(f.o.Started) > listsWait
		}
		if now != last || files || first || time.Since(used) > modelKeep/10 {
			last, used = now, time.Now()
			f.use(now)
			changed()
		}
		if first {
			f.listed.Store(true)
		}
		pace := modelsPace
		if f.listed.Load() {
			pace = modelsSlow
		}
		tick.Reset(ticks.Until(pace))
		watch.Waiting()
		files = false
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			files = true
		case <-tick.C:
		}
	}
}

// allListed reports whether the model list of each endpoint has been read.
func allListed(snapshot *endpoint.Snapshot) bool {
	return len(snapshot.Endpoints) > 0 && !slices.ContainsFunc(snapshot.Endpoints, func(ep *endpoint.Endpoint) bool {
		list, _ := ep.EngineModels()
		return list == nil && !ep.Down() && ep.Cluster == ""
	})
}

// use sets the wanted models from the pool's, and loads those whose files have been found.
func (f *modelFinder) use(snapshot *endpoint.Snapshot) {
	if f.off {
		return
	}
	var lists []*endpoint.ModelList
	for _, ep := range snapshot.Endpoints {
		if list, _ := ep.EngineModels(); list != nil && ep.Cluster == "" {
			lists = append(lists, list)
		}
	}
	groups := f.keep(roots.Of(lists, f.o.Models.Configures), time.Now())
	f.groups.Store(&groups)
	var wants []modelfiles.Want
	rootOf := map[string]string{}
	for _, g := range groups {
		for _, name := range append(slices.Clone(g.Names), g.Root) {
			rootOf[name] = g.Root
		}
		wants = append(wants, modelfiles.Want{Root: g.Root, Names: g.Names})
	}
	f.roots.Store(&rootOf)
	f.source.Set(wants)
	var found []ModelOptions
	for _, g := range groups {
		if folder := f.source.Folder(g.Root); folder != "" {
			found = append(found, ModelOptions{Name: g.Root, Path: folder, Aliases: g.Names, Adapters: g.Adapters})
		}
	}
	f.o.Models.SetFound(found)
	f.used.Store(int64(len(found)))
}

// keep returns the groups, followed by recently reported groups that no engine reports now. Names
// of current groups take precedence.
func (f *modelFinder) keep(groups []roots.Group, now time.Time) []roots.Group {
	taken := map[string]bool{}
	for _, g := range groups {
		f.seen[g.Root] = seenModel{g, now}
		for _, name := range slices.Concat([]string{g.Root}, g.Names, g.Adapters) {
			taken[name] = true
		}
	}
	isTaken := func(name string) bool { return taken[name] }
	for _, root := range slices.Sorted(maps.Keys(f.seen)) {
		old := f.seen[root]
		switch {
		case now.Sub(old.at) > modelKeep:
			delete(f.seen, root)
		case !taken[root]:
			g := roots.Group{Root: root, Names: slices.Clone(old.group.Names), Adapters: slices.Clone(old.group.Adapters)}
			g.Names, g.Adapters = slices.DeleteFunc(g.Names, isTaken), slices.DeleteFunc(g.Adapters, isTaken)
			groups = append(groups, g)
			for _, name := range slices.Concat([]string{root}, g.Names, g.Adapters) {
				taken[name] = true
			}
		}
	}
	return groups
}

// ready reports whether no model is being searched for or loaded for the first time. A search counts
// only until the timeout: downloads may take longer than a replica may stay unready.
func (f *modelFinder) ready() bool {
	return f.o.Models.Ready() && !f.searching()
}

// searching reports whether a starting replica may still find model files soon.
func (f *modelFinder) searching() bool {
	if f.off || time.Since(f.o.Started) > f.o.Timeout {
		return false
	}
	return !f.listed.Load() || f.source.Pending() || f.source.Found() > int(f.used.Load())
}

// missing describes the missing files of the model with this served name. It returns "" if files
// have been found, and for names that no engine reports.
func (f *modelFinder) missing(name string) string {
	root, ok := (*f.roots.Load())[name]
	if !ok {
		return ""
	}
	st, remedy, missing := f.source.Missing(root)
	if !missing {
		return ""
	}
	return fmt.Sprintf("files of model %s: %s; %s", budget.PrintableName(root), st, remedy)
}

// withoutFiles describes the models whose prompts are matched approximately because their files are
// missing, "" if there are none.
func (f *modelFinder) withoutFiles() string {
	n, first := 0, ""
	for _, st := range f.source.Status() {
		if st.State != modelfiles.StateReady && st.State != modelfiles.StatePending {
			if n++; n == 1 {
				first = fmt.Sprintf("%s: %s: %s", st.Model, st.State, st.Remedy)
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("prompts of %d models are matched approximately (%s)", n, first)
}

// pendingModels returns the names of models whose files are being searched for the first time.
func (f *modelFinder) pendingModels() (list []facts.ModelInUse) {
	pending := map[string]bool{}
	for _, st := range f.source.Status() {
		if st.State == modelfiles.StatePending {
			pending[st.Model] = true
		}
	}
	names := map[string]bool{}
	for _, g := range *f.groups.Load() {
		if pending[budget.PrintableName(g.Root)] {
			for _, name := range slices.Concat([]string{g.Root}, g.Names, g.Adapters) {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, facts.ModelInUse{Name: name, Loading: true})
	}
	return list
}

// modelsInUse lists the model behind every model name.
func (f *modelFinder) modelsInUse() (list []facts.ModelInUse) {
	of := map[string]facts.ModelInUse{}
	for _, st := range f.o.Models.Registry().Status() {
		of[st.Name] = facts.ModelInUse{Name: st.Name, Model: f.o.Models.Model(st.Name), Loading: st.State == prompt.StateLoading}
	}
	for name, base := range f.o.Models.Registry().Names() {
		u := of[base]
		u.Name = name
		list = append(list, u)
	}
	return append(list, f.pendingModels()...)
}
