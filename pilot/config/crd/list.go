package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// ListOptions are what to read once. Client is needed.
type ListOptions struct {
	Client    *rest.Config
	Kinds     []*kinds.Kind
	Only      map[*kinds.Kind]Restriction  // the kinds that are read in part, and that part
	Namespace string                       // what is read of a kind that may not be read in all namespaces; empty: nothing
	Limits    limits.Limits                // the zero Limits are limits.Default
	Page      int64                        // objects of one answer at most; 0 is 500
	Progress  func(kind string, count int) // called after each answer; may be nil
}

// Listing is what an API server had when it was asked. One goroutine uses it at a time.
type Listing struct {
	o       ListOptions
	source  *Source
	denied  map[denial][]string // the resources
	unknown map[kinds.Key]bool

	deadline time.Time // of all that is read; zero: there is none
}

// denial is what a user may not do with some resources, and what follows.
type denial struct{ verb, where, effect string }

// List reads all objects of some kinds, in pages. A kind that the API server does not have is left out, and one that
// this user may not read is a finding. It fails if the API server cannot be asked.
func List(ctx context.Context, o ListOptions) (*Listing, error) {
	s, err := New(Options{Client: o.Client, Kinds: o.Kinds, Only: o.Only, Logger: slog.New(slog.DiscardHandler), Limits: o.Limits})
	if err != nil {
		return nil, err
	}
	o.Page = cmp.Or(o.Page, 500)
	l := &Listing{o: o, source: s, denied: map[denial][]string{}, unknown: map[kinds.Key]bool{}}
	l.deadline, _ = ctx.Deadline()
	defer s.http.CloseIdleConnections()
	for _, f := range s.feeds {
		if err := l.kind(ctx, f); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", f.plural, o.Client.Host, err)
		}
	}
	return l, nil
}

// Changes returns all objects that were read and can be used, as the first call of a Handler has them.
func (l *Listing) Changes() []kinds.Change {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	changes := make([]kinds.Change, 0, len(l.source.pending))
	for key, t := range l.source.pending {
		if t.now != nil {
			changes = append(changes, kinds.Change{Key: key, Object: t.now})
		}
	}
	config.Sort(changes)
	return changes
}

// Findings returns what is wrong with single objects, and what may not be read.
func (l *Listing) Findings() []diag.Diagnostic {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	var list []diag.Diagnostic
	for d, resources := range l.denied {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "IST0141", Message: fmt.Sprintf("this user may not %s %s%s: %s", d.verb, strings.Join(slices.Compact(slices.Clone(resources)), ", "), d.where, d.effect),
			Fix: fmt.Sprintf("grant the verb %s on them", d.verb),
		})
	}
	for _, c := range l.source.complaints {
		list = append(list, c...)
	}
	slices.SortFunc(list, config.ByObject)
	return list
}

// Unknown reports whether an object that Get was asked for could not be looked for: this user may not.
func (l *Listing) Unknown(key kinds.Key) bool { return l.unknown[key] }

// Get reads single objects of core kinds beside what was listed, and returns those that are there. What this user may
// not read is a finding for each namespace.
func (l *Listing) Get(ctx context.Context, keys []kinds.Key) ([]kinds.Change, error) {
	defer l.source.http.CloseIdleConnections()
	if !l.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.deadline)
		defer cancel()
	}
	var changes []kinds.Change
	forbidden := map[kinds.Key]bool{} // by kind and namespace
	for _, key := range keys {
		in := kinds.Key{Kind: key.Kind, Namespace: key.Namespace}
		if forbidden[in] {
			l.unknown[key] = true
			continue
		}
		f := newFeed(l.source, key.Kind, Restriction{Namespace: key.Namespace, Names: []string{key.Name}})
		object, err := l.get(ctx, f, key)
		switch {
		case apierrors.IsForbidden(err):
			forbidden[in], l.unknown[key] = true, true
			l.permission(f, "get", " in namespace "+key.Namespace, "what names one there is not judged")
		case err != nil:
			return nil, fmt.Errorf("read %s of %s: %w", key, l.o.Client.Host, err)
		case object != nil:
			changes = append(changes, kinds.Change{Key: key, Object: object})
		}
	}
	return changes, nil
}

// get reads one object; nil if it is not there.
func (l *Listing) get(ctx context.Context, f *feed, key kinds.Key) (*kinds.Object, error) {
	client, err := f.client(f.versions[0])
	if err != nil {
		return nil, err
	}
	result := client.Get().Namespace(key.Namespace).Resource(f.plural).Name(key.Name).Timeout(l.source.timeouts.answer).Do(ctx)
	if err := result.Error(); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	it, err := readObject(data, f.item)
	if err != nil {
		return nil, err
	}
	return f.object(it)
}

// kind reads the objects of a feed: in all namespaces, or in the one where that is allowed.
func (l *Listing) kind(ctx context.Context, f *feed) error {
	for _, version := range f.versions {
		err := l.pages(ctx, f, version)
		switch {
		case apierrors.IsNotFound(err): // there is no such kind, or not of that version
			continue
		case !apierrors.IsForbidden(err):
			return err
		}
		served, err := l.served(ctx, f, version)
		if err != nil {
			return err
		}
		if !served { // a user without rights is not told that there is no such kind, or not of that version
			continue
		}
		const effect = "findings about what refers to them may be wrong or missing"
		if f.kind.Cluster || f.only.Namespace != "" || l.o.Namespace == "" {
			where := ""
			if f.only.Namespace != "" {
				where = " in namespace " + f.only.Namespace
			}
			l.permission(f, "list", where, effect)
			return nil
		}
		f.watched.selectors.namespace = l.o.Namespace
		err = l.pages(ctx, f, version)
		if apierrors.IsForbidden(err) {
			l.permission(f, "list", "", effect)
			return nil
		}
		l.permission(f, "list", " outside namespace "+l.o.Namespace, effect)
		return err
	}
	return nil
}

// served reports whether the API server has the kind of a feed, as its discovery says.
func (l *Listing) served(ctx context.Context, f *feed, version string) (bool, error) {
	if f.core != nil {
		return true, nil
	}
	names, err := f.resources(ctx, version)
	if apierrors.IsForbidden(err) {
		return true, nil // without discovery it has to be assumed
	}
	return slices.Contains(names, f.plural), err
}

// attempts is how often a list is begun anew when the API server has forgotten where it was.
const attempts = 5

// pages reads all pages of a list. An API server that was compacted meanwhile is asked from the beginning, and what it
// said before is forgotten.
func (l *Listing) pages(ctx context.Context, f *feed, version string) error {
	client, err := f.client(version)
	if err != nil {
		return err
	}
	next, count, begun := "", 0, 1
	for {
		o := metav1.ListOptions{Limit: l.o.Page, Continue: next, FieldSelector: f.watched.selectors.fields, LabelSelector: f.watched.selectors.labels}
		result := client.Get().NamespaceIfScoped(f.watched.selectors.namespace, f.watched.selectors.namespace != "").Resource(f.plural).
			VersionedParams(&o, metav1.ParameterCodec).Timeout(l.source.timeouts.answer).Do(ctx)
		if err := result.Error(); err != nil {
			if apierrors.IsResourceExpired(err) && begun < attempts {
				next, count = "", 0
				begun++
				for n := range f.entries { // it may be gone, or be another one by now
					f.remove(n)
				}
				continue
			}
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				err = errUnanswered
			}
			return err
		}
		data, err := result.Raw()
		if err != nil {
			return err
		}
		list, err := readList(data, f.item)
		if err != nil {
			return err
		}
		for _, it := range list.Items {
			f.apply(it.(*item))
		}
		count += len(list.Items)
		if l.o.Progress != nil {
			l.o.Progress(f.String(), count)
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// permission notes what this user may not do.
func (l *Listing) permission(f *feed, verb, where, effect string) {
	resource := f.plural
	if f.group != "" {
		resource += "." + f.group
	}
	d := denial{verb, where, effect}
	l.denied[d] = append(l.denied[d], resource)
}
