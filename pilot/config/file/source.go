package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/galley/validation/schema"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options configure a Source. Dir and Handler are required.
type Options struct {
	Dir     string
	Handler config.Handler
	Logger  *slog.Logger
	Poll    time.Duration // interval of scans without file events; 0 for 1 s
	NoWatch bool          // ignore file events
	Limits  limits.Limits // limits; the zero value means limits.Default

	// Vital reports whether a server must not start without a ConfigMap, as it must not without a security object. The
	// key has no name if the name of the ConfigMap is unreadable. Nil if no ConfigMap is vital.
	Vital func(kinds.Key) bool
}

// vital reports whether a server must not start without the object, if it is a ConfigMap.
func (o Options) vital(k kinds.Key) bool {
	return k.Kind == kinds.ConfigMap && o.Vital != nil && o.Vital(k)
}

// Source reads one directory, or serves files in memory.
type Source struct {
	opts     Options
	rules    validation.Rules
	texts    *Texts // files in memory; nil if a directory is read
	synced   atomic.Bool
	findings config.Findings

	// The fields below are owned by the Run goroutine.
	files     map[string]*content // by path relative to the directory
	published map[kinds.Key]claim
	watch     *watchfile.Watch
	judged    time.Time // time of the last decoding, or zero if the schemas were dropped since
}

// New returns a Source of a directory. It fails if the directory does not exist.
func New(opts Options) (*Source, error) {
	info, err := os.Stat(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the config directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("read the config directory: %s is not a directory", opts.Dir)
	}
	return newSource(opts), nil
}

func newSource(opts Options) *Source {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Limits == (limits.Limits{}) {
		opts.Limits = limits.Default()
	}
	rules := validation.Rules{Limits: opts.Limits, Schemas: &schema.Set{}}
	if opts.vital(kinds.Key{Kind: kinds.ConfigMap}) {
		rules.Vital = []*kinds.Kind{kinds.ConfigMap}
	}
	return &Source{opts: opts, rules: rules, files: map[string]*content{}, published: map[kinds.Key]claim{}}
}

// HasSynced reports whether the handler's first call has returned.
func (s *Source) HasSynced() bool { return s.synced.Load() }

// Findings returns the current findings, sorted by file and line. The caller must not modify the result.
func (s *Source) Findings() []diag.Diagnostic { return s.findings.Get() }

// Run reads the directory, calls the handler, and then follows changes until ctx ends, when it returns nil. It fails if
// the directory is unreadable, or if a part of the first load is that may restrict something; the findings name it. It
// is called once.
func (s *Source) Run(ctx context.Context) error {
	if s.texts != nil {
		return s.runTexts(ctx)
	}
	s.watch = watchfile.New(watchfile.Options{Poll: s.opts.Poll, NoWatch: s.opts.NoWatch, Logger: s.opts.Logger})
	defer s.watch.Close()

	recheck, err := s.load(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	s.synced.Store(true)

	for s.watch.Next(ctx, recheck) {
		recheck = s.reload()
	}
	return nil
}

// firstWait bounds how long the first load waits for files that look unfinished. Each is taken after boundLast, but new
// ones may appear. The time for reading files is not part of it: on a busy machine each file would be looked at only
// once.
const firstWait = boundLast + boundDoubt

func (s *Source) load(ctx context.Context) (recheck time.Duration, err error) {
	start, waited := time.Now(), time.Duration(0)
	for {
		var found listing
		found, recheck = s.scan()
		if found.err != nil {
			return 0, fmt.Errorf("read the config directory: %w", found.err)
		}
		if waited > boundDoubt {
			s.sayUnfinished()
			_, findings := s.merge(found)
			s.report(findings)
		}
		if recheck == 0 || waited > firstWait {
			if err := s.begin(found); err != nil {
				return 0, err
			}
			s.opts.Logger.Info(
				"config directory loaded", "name", s.opts.Dir, "objects", len(s.published), "files", len(s.files), "dur", time.Since(start),
			)
			return recheck, nil
		}
		select {
		case <-ctx.Done():
			return 0, nil
		case <-time.After(recheck):
			waited += recheck
		}
	}
}

// sayUnfinished adds a finding for each file that was never read because it is being written. The first load is
// not safe without it.
func (s *Source) sayUnfinished() {
	for path, c := range s.files {
		if c.readAt.IsZero() {
			c.findings = []diag.Diagnostic{{
				Severity: diag.Error, Code: "Unreadable", File: filepath.Join(s.opts.Dir, path),
				Message: "the file is being written, so what it holds is not known: the server waits for it",
				Fix:     "end the writing, or remove the file",
			}}
			c.unsafe = c.findings
		}
	}
}

// begin puts the first load into force, if that is safe. Texts are only judged: they are published all the same, so
// that a command reports every finding.
func (s *Source) begin(found listing) error {
	if err := s.unsafe(found); err != nil {
		for _, c := range s.files {
			c.refuse()
		}
		if s.texts != nil {
			s.texts.refusal = fmt.Errorf("files: %w", err)
			s.publish(found)
			return nil
		}
		_, findings := s.merge(found)
		s.report(findings)
		return err
	}
	s.publish(found)
	return nil
}

// unsafe returns an error if the first load must not be served: a part of it is unreadable, or a security object in it
// is unusable or defined twice.
func (s *Source) unsafe(found listing) error {
	var why []error
	if s.texts == nil {
		for _, d := range found.findings {
			why = append(why, errors.New(d.String()))
		}
	}
	for _, path := range sortedPaths(s.files) {
		for _, d := range s.files[path].unsafe {
			why = append(why, errors.New(d.String()))
		}
	}
	for _, d := range s.versions() {
		why = append(why, errors.New(d.String()))
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf(
		"an error in the configuration may hide an object that restricts traffic, and serving without it is not safe: %w",
		errors.Join(why...),
	)
}

func (s *Source) reload() (recheck time.Duration) {
	found, recheck := s.scan()
	s.publish(found)
	return recheck
}

// report publishes the findings.
func (s *Source) report(list []diag.Diagnostic) {
	s.findings.Set(list, config.ByPosition, s.opts.Logger)
}
