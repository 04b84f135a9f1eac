package wait

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// target is an object to wait for.
type target struct {
	name       string        // as the server is asked for it, such as VirtualService.networking.istio.io/reviews.shop
	object     *kinds.Object // as a file has it; nil if an argument names it
	generation int64         // 0 for any
	uid        string        // of the object with that generation; empty for any
	version    string        // hash of the content; empty for any
	newest     bool          // the version that the API server has at each question
	deleted    bool          // its deletion is awaited

	last    progress.Answer
	doubted time.Time // since when the last answers may not last; zero if the last one is no such answer
	warned  bool
}

// patience is how long a doubtful answer must last before it is taken for final. When a proxy rejects a response with
// several resources, the server sends it again in parts, and the proxy may accept the part with the object. An object
// may have had the content of a file before, or may have been deleted, and the server may not have read yet that it has
// this content again or exists again.
const patience = 2 * time.Second

// Intervals between two questions about an object. The interval grows, so that a long wait costs the servers little.
const (
	firstInterval = 50 * time.Millisecond
	lastInterval  = time.Second
)

// waiter asks for the states of objects until all are in force.
type waiter struct {
	out, warnings io.Writer
	output        string
	watch         bool
	answered      atomic.Bool // the server answered a question
	newest        bool        // the version that the API server has at each question
	targets       []*target

	servers
}

// servers are the control plane and the API server.
type servers interface {
	// ask asks the control plane for the state of an object.
	ask(ctx context.Context, t *target) (progress.Answer, error)
	// current returns the version that the API server has of an object.
	current(ctx context.Context, k kinds.Key) (crd.Version, error)
}

// wait returns nil when all objects are in force. With watch it prints each change of a state, and ends with ctx.
func (w *waiter) wait(ctx context.Context) error {
	interval := firstInterval
	var last []byte
	for {
		open, err := w.askAll(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if w.watch {
			w.warn()
			var out bytes.Buffer
			if err := w.show(&out); err != nil {
				return err
			}
			if !bytes.Equal(out.Bytes(), last) {
				last, interval = out.Bytes(), firstInterval
				if _, err := w.out.Write(last); err != nil {
					return err
				}
			}
		} else if err == nil && !open || w.failed() {
			return w.result()
		}
		select {
		case <-ctx.Done():
			if w.watch {
				return nil // it has printed each change already
			}
			return w.result()
		case <-time.After(interval):
		}
		interval = min(lastInterval, interval*5/4)
	}
}

// states are the states that this command knows.
func states() []progress.State {
	return []progress.State{progress.InForce, progress.Behind, progress.Rejected, progress.Superseded, progress.NotSeen,
		progress.WithoutEffect, progress.Invalid, progress.Unknown}
}

// question asks for the state of an object. A server that is busy, or that has answered before and may start again, is
// asked again: then the state is unknown. question fails if the server refuses to answer.
func (w *waiter) question(ctx context.Context, t *target) error {
	answer, err := w.ask(ctx, t)
	if err == nil && !slices.Contains(states(), answer.State) {
		err = fmt.Errorf("the server says %.64q about %s, which is no state that this program knows", answer.State, t.name)
	}
	var refused *cli.StatusError
	busy := errors.As(err, &refused) && (refused.Code == http.StatusTooManyRequests || refused.Code == http.StatusServiceUnavailable)
	forbidden := refused != nil && refused.Code == http.StatusForbidden
	if err != nil && !busy && (!w.answered.Load() || forbidden || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		answer = progress.Answer{Object: t.last.Object, State: progress.Unknown, Why: err.Error(), Owing: []progress.Owing{}}
	}
	t.last = answer
	w.answered.Store(true)
	return nil
}

// askAll asks for the state of each object that was not in force at the last question, or of all with watch. It reports
// whether one of them may still come into force. An object without effect is asked about again after the others,
// because one of them may have made a proxy need it.
func (w *waiter) askAll(ctx context.Context) (open bool, err error) {
	if err := w.askEach(ctx, func(t *target) bool { return w.watch || !t.done() }); err != nil {
		return true, err
	}
	if err := w.askEach(ctx, func(t *target) bool { return t.last.State == progress.WithoutEffect && len(w.targets) > 1 }); err != nil {
		return true, err
	}
	return slices.ContainsFunc(w.targets, func(t *target) bool { return !t.done() }), nil
}

// questions is the maximum number of objects that are asked about at the same time.
const questions = 4

// askEach asks for the states of some objects.
func (w *waiter) askEach(ctx context.Context, about func(*target) bool) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(questions)
	for _, t := range w.targets {
		if about(t) {
			all.Go(func() error { return w.askAbout(ctx, t) })
		}
	}
	return all.Wait()
}

// askAbout asks for the state of an object in the version that is awaited.
func (w *waiter) askAbout(ctx context.Context, t *target) error {
	if err := w.question(ctx, t); err != nil {
		return err
	}
	if again, err := w.identify(ctx, t); err != nil {
		return err
	} else if again {
		if err := w.question(ctx, t); err != nil {
			return err
		}
	}
	if err := w.numbered(ctx, t); err != nil {
		return err
	}
	switch {
	case !t.doubtful():
		t.doubted = time.Time{}
	case t.doubted.IsZero():
		t.doubted = time.Now()
	}
	return nil
}

// numbered returns an error if an object is awaited in a generation although objects like it have no generation.
func (w *waiter) numbered(ctx context.Context, t *target) error {
	if t.object != nil || t.generation == 0 || t.last.State != progress.NotSeen {
		return nil
	}
	newest, err := w.ask(ctx, &target{name: t.name})
	switch {
	case err != nil || newest.Deleted || newest.Generation > 0:
		return nil // without an answer, the next question says why
	case newest.Position != "":
		return fmt.Errorf("--generation=%d: %s has no generation, because the server reads it from a file, %s: name the file by -f",
			t.generation, t.name, newest.Position)
	case newest.Version != "" || newest.Since != nil:
		return fmt.Errorf("--generation=%d: %s has no generation: name a file with the object by -f", t.generation, t.name)
	}
	return nil
}

// warn warns of objects without effect, and of deleted objects that the server does not know.
func (w *waiter) warn() {
	for _, t := range w.targets {
		if t.warned || !t.done() {
			continue
		}
		if t.deleted && t.last.Since == nil && !t.onDemand() {
			t.warned = true
			cli.Warn(w.warnings, "the server knows no %s: it was deleted before the server started, or its name is misspelt", t.name)
		}
		if t.last.State == progress.WithoutEffect {
			t.warned = true
			cli.Warn(w.warnings, "%s has no effect on a connected proxy: %s", t.name, t.last.Why)
			for _, d := range t.last.Findings {
				fmt.Fprintf(w.warnings, "  %s\n", terminal.Plain(d.String()))
			}
		}
	}
}

// identify finds out which version of an object a file has, once the server has read the object. It returns true if the
// server must be asked again, about this version.
func (w *waiter) identify(ctx context.Context, t *target) (again bool, err error) {
	switch {
	case t.object == nil || t.generation > 0 || t.version != "" || t.newest:
		return false, nil
	case t.object.Kind == kinds.Secret: // an API server stores it as it is written
		t.version = archive.Content(t.object)
		return true, nil
	case t.last.State == progress.NotSeen, t.last.Deleted,
		t.last.State == progress.Unknown && t.last.Generation == 0 && t.last.Version == "": // the server has not said anything
		return false, nil
	case t.last.Generation > 0:
		v, err := w.current(ctx, t.object.Key)
		if err != nil {
			return false, fmt.Errorf("failed to read the generation of %s from the API server: %w", t.name, err)
		}
		t.generation, t.uid = v.Generation, v.UID
		return true, nil
	case t.last.Position != "" || t.object.Kind.Istio || t.object.Kind.IsGatewayAPI():
		t.version = archive.Content(t.object) // an API server would have given a generation to such an object
		return true, nil
	}
	t.newest = true // the server reads what the object contains, which the API server may have completed
	return true, nil
}

// done reports whether the object is in force, or without effect.
func (t *target) done() bool {
	return (t.last.State == progress.InForce || t.last.State == progress.WithoutEffect) && !t.gone()
}

// onDemand reports whether a replica knows the object only while one of its proxies needs it.
func (t *target) onDemand() bool {
	return t.last.Object.Group == "" && slices.Contains([]string{kinds.Secret.Name, kinds.ConfigMap.Name}, t.last.Object.Kind)
}

// gone reports whether the object is deleted although its deletion is not awaited.
func (t *target) gone() bool { return t.last.Deleted && !t.deleted }

// doubtful reports whether the last answer means failure if it lasts. If the server knows an object of a file as
// deleted, it may not have read the file's version yet, so that answer is not doubtful.
func (t *target) doubtful() bool {
	switch t.last.State {
	case progress.Rejected:
		return true
	case progress.Superseded:
		return t.version != ""
	case progress.Unknown:
		return false
	}
	return t.gone() && t.object == nil
}

// failed reports whether an object will not come into force in the version that is awaited.
func (w *waiter) failed() bool {
	return slices.ContainsFunc(w.targets, func(t *target) bool {
		switch {
		case !t.doubted.IsZero():
			return time.Since(t.doubted) >= patience
		case t.last.State == "", t.done(), t.gone():
			return false
		}
		// A newer version is awaited by the next question.
		return t.last.State.Final() && !((w.newest || t.newest) && t.last.State == progress.Superseded)
	})
}

// result prints the states, and returns the error for the exit code.
func (w *waiter) result() error {
	for _, t := range w.targets {
		if t.last.State == "" {
			t.last = progress.Answer{State: progress.Unknown, Why: "the server has not answered", Owing: []progress.Owing{}}
		}
	}
	w.warn()
	var out bytes.Buffer
	if err := w.show(&out); err != nil {
		return err
	}
	if _, err := w.out.Write(out.Bytes()); err != nil {
		return err
	}
	open := slices.DeleteFunc(slices.Clone(w.targets), (*target).done)
	switch {
	case len(open) == 0:
		return nil
	case slices.ContainsFunc(open, func(t *target) bool { return t.last.State != progress.Unknown }):
		return cli.Exit(cli.Found)
	}
	return errors.New("whether the objects are in force is not known")
}

// show prints the states in the output format.
func (w *waiter) show(out io.Writer) error {
	switch w.output {
	case "name":
		for _, t := range w.targets {
			if t.done() {
				fmt.Fprintln(out, t.name)
			}
		}
		return nil
	case "json", "yaml":
		list := []progress.Answer{}
		for _, t := range w.targets {
			list = append(list, t.last)
		}
		return cli.PrintValue(out, list, w.output)
	}
	table := tabwriter.NewWriter(out, 8, 8, 3, ' ', 0)
	for _, t := range w.targets {
		fmt.Fprintf(table, "%s\t%s\t%s\n", terminal.Plain(t.name), t.state(), t.reason())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, t := range w.targets {
		if t.done() {
			continue
		}
		for _, o := range t.last.Owing {
			fmt.Fprintf(out, "  %s\n", describe(o))
		}
		if t.last.More > 0 {
			fmt.Fprintf(out, "  and %d more\n", t.last.More)
		}
		for _, d := range t.last.Findings {
			fmt.Fprintf(out, "  %s\n", d)
		}
		if t.last.State == progress.NotSeen && t.last.Why == "" && len(t.last.Findings) == 0 {
			fmt.Fprintln(out, "  "+unseen)
		}
	}
	return nil
}

// unseen is a hint why a server may not have seen a version.
const unseen = "no source of the server has this version: see /debug/findings; a server with --configDir reads Istio's kinds " +
	"from the API server only if configSources of the mesh configuration name k8s://"

// state returns the state as the table shows it.
func (t *target) state() string {
	switch state := string(cmp.Or(t.last.State, progress.Unknown)); {
	case t.gone():
		return "deleted"
	case t.last.Deleted:
		return "deletion " + state
	default:
		return state
	}
}

// reason returns the number of proxies that have a version, and why it is not in force everywhere.
func (t *target) reason() string {
	a := &t.last
	var parts []string
	if p := &a.Proxies; a.Counted && p.Concerned > 0 || !a.Counted && p.Connected > 0 && a.State != progress.WithoutEffect {
		parts = append(parts, a.Numbers())
	}
	if a.Why != "" {
		parts = append(parts, a.Why)
	}
	for _, r := range a.Replicas {
		if r.Error != "" {
			parts = append(parts, r.Name+": "+r.Error)
		}
	}
	if t.gone() {
		parts = append(parts, "--deleted awaits the deletion")
	}
	return strings.Join(parts, "; ")
}

// describe returns why a proxy does not have a version.
func describe(o progress.Owing) string {
	text := fmt.Sprintf("%s: %s since %s", o.Proxy, o.State, o.Since.Local().Format("15:04:05.000"))
	if o.Replica != "" {
		text += ", connected to " + o.Replica
	}
	if o.Message != "" {
		text += ": " + strings.ToUpper(o.Type) + ": " + o.Message
	}
	if o.Together {
		text += " (it was sent other changes at the same time, and may reject one of them)"
	}
	return text
}
