package discovery

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch tells when something changed where the file is. It looks at folders
// rather than at the file, so that a rename over the file and a swap of the
// symbolic link that Kubernetes mounts are seen: the file's own folder and,
// when the file is a link, the folder that it leads to.
type watch struct {
	w       *fsnotify.Watcher
	path    string
	folders map[string]bool
}

func newWatch(path string) (*watch, error) {
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

// follow moves the second watch to where the link leads at this moment.
func (f *watch) follow() {
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

func (f *watch) close() { f.w.Close() }
