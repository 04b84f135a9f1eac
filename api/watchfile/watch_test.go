package watchfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// follower reads one file each time that a Watch says so.
type follower struct {
	t     *testing.T
	watch *watchfile.Watch
	text  atomic.Value // what was read last, or "" if there is no file
	looks atomic.Int64
}

// follow follows a file until the test ends.
func follow(t *testing.T, path string, o watchfile.Options) *follower {
	t.Helper()
	o.Paths = []string{"", path}
	f := &follower{t: t, watch: watchfile.New(o)}
	read := func() {
		text, _ := os.ReadFile(path)
		f.text.Store(string(text))
		f.looks.Add(1)
	}
	read()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for f.watch.Next(ctx, 0) {
			read()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		f.watch.Close()
	})
	return f
}

// sees waits until the file holds a text.
func (f *follower) sees(want string) {
	f.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); f.text.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("it has %q, not %q", f.text.Load(), want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
}

// swap replaces a volume of one file as a kubelet does.
func swap(t *testing.T, dir, name string, generation int, text string) {
	t.Helper()
	write(t, filepath.Join(dir, fmt.Sprintf("..%d", generation), name), text)
	must.Succeed(t, os.Symlink(fmt.Sprintf("..%d", generation), filepath.Join(dir, "..data_tmp")))
	must.Succeed(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	_ = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
	_ = os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", generation-1)))
}

// TestFollow changes a file in all ways. Without events each change is found by a poll; with them no poll helps.
func TestFollow(t *testing.T) {
	for name, o := range map[string]watchfile.Options{"events": {Poll: time.Hour}, "poll": {Poll: 10 * time.Millisecond, NoWatch: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			folder := filepath.Join(dir, "not", "there")
			path := filepath.Join(folder, "file")
			f := follow(t, path, o)
			f.sees("")
			write(t, path, "made")
			f.sees("made")
			write(t, path, "written")
			f.sees("written")
			write(t, path+".new", "renamed")
			must.Succeed(t, os.Rename(path+".new", path))
			f.sees("renamed")
			must.Succeed(t, os.Remove(path))
			f.sees("")
			write(t, path, "again")
			f.sees("again")
			must.Succeed(t, os.Rename(folder, folder+".away"))
			f.sees("")
			must.Succeed(t, os.Rename(folder+".away", folder))
			f.sees("again")
			write(t, path, "after the folder came back")
			f.sees("after the folder came back")
			must.Succeed(t, os.RemoveAll(filepath.Join(dir, "not")))
			f.sees("")
			for i := range 20 {
				swap(t, folder, "file", i, fmt.Sprint("swap ", i))
				f.sees(fmt.Sprint("swap ", i))
			}
			must.Succeed(t, os.RemoveAll(folder))
			must.Succeed(t, os.Symlink(filepath.Join(dir, "other"), folder))
			f.sees("")
			write(t, filepath.Join(dir, "other", "file"), "behind a link")
			f.sees("behind a link")
		})
	}
}

// TestSwapsAtRandomTimes has a file behind links, replaced while the watch moves to the last replacement: the last one
// is seen each time.
func TestSwapsAtRandomTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := follow(t, filepath.Join(dir, "file"), watchfile.Options{Poll: time.Hour})
	n := 0
	for round := range 20 {
		for range 10 {
			n++
			swap(t, dir, "file", n, fmt.Sprint(n))
			time.Sleep(time.Duration(round) * time.Millisecond)
		}
		f.sees(fmt.Sprint(n))
	}
}

// TestNothingIsMissedBeforeTheFirstRead changes a file after New, and before anything waits.
func TestNothingIsMissedBeforeTheFirstRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	w := watchfile.New(watchfile.Options{Paths: []string{path}, Poll: time.Hour})
	defer w.Close()
	write(t, path, "text")
	if !w.Next(t.Context(), 0) {
		t.Error("it has ended")
	}
}

// TestStrangersAreIgnored writes beside the file: nothing is to be read.
func TestStrangersAreIgnored(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, filepath.Join(dir, "file"), watchfile.Options{Poll: time.Hour})
	for i := range 100 {
		write(t, filepath.Join(dir, fmt.Sprint("other", i%7)), fmt.Sprint(i))
	}
	write(t, filepath.Join(dir, "file"), "text") // the events before have been taken once this one is
	f.sees("text")
	if n := f.looks.Load(); n > 4 { // the first, and one each if making and writing are seen apart
		t.Errorf("%d looks at one change", n)
	}
}

// TestManyEventsAreFewLooks writes a file very often.
func TestManyEventsAreFewLooks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := follow(t, path, watchfile.Options{Poll: time.Hour})
	begin := time.Now()
	const writes = 5000
	for i := range writes {
		write(t, path, fmt.Sprint(i))
	}
	f.sees(fmt.Sprint(writes - 1))
	if n, most := f.looks.Load(), int64(time.Since(begin)/(20*time.Millisecond))+3; n > most {
		t.Errorf("%d looks at %d writes: want at most %d", n, writes, most)
	}
}

// TestDirectory follows all that is in a directory.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	must.Succeed(t, os.Mkdir(dir, 0o755))
	w := watchfile.New(watchfile.Options{Paths: []string{dir}, Poll: time.Hour})
	defer w.Close()
	for i := range 3 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "text")
		if !w.Next(t.Context(), 0) {
			t.Error("it has ended")
		}
	}
}

// TestNext returns in time, when it is woken, and not once its context has ended. A named pipe does not block it.
func TestNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	w := watchfile.New(watchfile.Options{Paths: []string{path}, Poll: time.Hour})
	defer w.Close()
	if !w.Next(t.Context(), time.Millisecond) {
		t.Error("it does not return within the time")
	}
	w.Wake()
	if !w.Next(t.Context(), 0) {
		t.Error("it does not return when it is woken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w.Next(ctx, 0) {
		t.Error("it returns after its end")
	}
}

func TestStamp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if s := watchfile.StampAt(path); s != (watchfile.Stamp{}) {
		t.Errorf("no file: %v", s)
	}
	write(t, path, "text")
	one := watchfile.StampAt(path)
	write(t, path, "longer text")
	two := watchfile.StampAt(path)
	if one == two || !one.SameFile(two) {
		t.Errorf("%v, %v", one, two)
	}
	write(t, path+".new", "longer text")
	must.Succeed(t, os.Rename(path+".new", path))
	if three := watchfile.StampAt(path); three.SameFile(two) {
		t.Errorf("%v, %v", two, three)
	}
}
