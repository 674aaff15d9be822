package discovery

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch reports changes at the file's location. It watches folders instead of the file, to detect a
// rename over the file and a swap of the symbolic link that Kubernetes mounts. These are the file's
// own folder and, if the file is a link, the target's folder.
type watch struct {
	w       *fsnotify.Watcher
	path    string
	folders map[string]bool
}

// newWatch returns nil and logs it if watching is not possible.
func newWatch(path string, o WatchOptions) *watch {
	f, err := tryWatch(path)
	if err != nil {
		o.Log.Warn("cannot watch the file, polling it instead", "path", path, "every", o.Poll, "error", err)
	}
	return f
}

func tryWatch(path string) (*watch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	f := &watch{w: w, path: path, folders: map[string]bool{}}
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return nil, err
	}
	f.follow()
	return f, nil
}

// follow moves the second watch to the link's current target. It accepts a nil watch.
func (f *watch) follow() {
	if f == nil {
		return
	}
	want := map[string]bool{}
	if target, err := filepath.EvalSymlinks(f.path); err == nil {
		if dir := filepath.Dir(target); dir != filepath.Dir(f.path) {
			want[dir] = true
		}
	}
	for dir := range f.folders {
		if !want[dir] {
			_ = f.w.Remove(dir) // it may be gone with its folder
			delete(f.folders, dir)
		}
	}
	for dir := range want {
		if err := f.w.Add(dir); err == nil {
			f.folders[dir] = true
		}
	}
}

// WatchOptions configure Watch. The zero value is usable.
type WatchOptions struct {
	Poll   time.Duration // interval of calls without a notification; 0 means 10 s
	Settle time.Duration // quiet time after a change before a call; 0 means 100 ms
	Log    *slog.Logger  // nil discards
}

// maxSettle is how many quiet times continuous changes of other files in the folder can delay a
// call.
const maxSettle = 10

// Watch calls look, on the caller's goroutine, whenever the file at path may have changed: it was
// written, another file was renamed over it, or a symbolic link on its path was swapped. It also
// calls look at the start and at every Poll. It returns when ctx ends.
func Watch(ctx context.Context, path string, o WatchOptions, look func()) {
	o.Poll, o.Settle = cmp.Or(o.Poll, defaultPoll), cmp.Or(o.Settle, defaultSettle)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := newWatch(path, o)
	look()
	w.run(ctx, o, look)
}

// run calls look whenever the file may have changed and every Poll, until ctx ends, and closes f. A
// nil watch only polls.
func (f *watch) run(ctx context.Context, o WatchOptions, look func()) {
	var changes <-chan fsnotify.Event
	var faults <-chan error
	if f != nil {
		defer f.w.Close()
		changes, faults = f.w.Events, f.w.Errors
	}
	poll := time.NewTicker(o.Poll)
	defer poll.Stop()
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()
	for put := 0; ; {
		select {
		case <-ctx.Done():
			return
		case err := <-faults: // for example an overflow: changes may have been lost
			o.Log.Warn("watching the file failed", "path", f.path, "error", err)
			settle.Reset(o.Settle)
		case <-changes:
			if put < maxSettle {
				settle.Reset(o.Settle)
			}
			put++
		case <-settle.C:
			put = 0
			f.follow()
			look()
		case <-poll.C:
			f.follow()
			look()
		}
	}
}
