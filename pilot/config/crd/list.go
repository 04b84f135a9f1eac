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

// ListOptions configure List. Client is required.
type ListOptions struct {
	Client    *rest.Config
	Kinds     []*kinds.Kind
	Only      map[*kinds.Kind]Restriction  // restrictions of kinds that are read partly
	Namespace string                       // namespace to read if a kind must not be read in all namespaces; empty for none
	Limits    limits.Limits                // limits; the zero value means limits.Default
	Page      int64                        // most objects of one response; 0 for 500
	Progress  func(kind string, count int) // called after each answer; may be nil
}

// Listing has the objects of an API server at one time. Only one goroutine at a time may use it.
type Listing struct {
	o       ListOptions
	source  *Source
	denied  map[denial][]string // resources by missing permission
	unknown map[kinds.Key]bool

	deadline time.Time // deadline of all requests; zero for none
}

// denial is a missing permission and its effect.
type denial struct{ verb, where, effect string }

// List reads all objects of some kinds, in pages. It skips kinds that the API server does not have. A kind that the
// user may not read is a finding. List fails if the API server cannot be reached.
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

// Changes returns all usable objects as the first call of a Handler has them.
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

// Findings returns the findings about objects, and missing permissions.
func (l *Listing) Findings() []diag.Diagnostic {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	var list []diag.Diagnostic
	for d, resources := range l.denied {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "IST0141",
			Message: fmt.Sprintf(
				"this user may not %s %s%s: %s", d.verb, strings.Join(slices.Compact(slices.Clone(resources)), ", "), d.where, d.effect,
			),
			Fix: fmt.Sprintf("grant the verb %s on them", d.verb),
		})
	}
	for _, c := range l.source.objectFindings {
		list = append(list, c.findings...)
	}
	slices.SortFunc(list, config.ByObject)
	return list
}

// Unknown reports whether Get could not read an object because the user may not.
func (l *Listing) Unknown(key kinds.Key) bool { return l.unknown[key] }

// Get reads single objects of core kinds in addition to the listed ones, and returns the existing ones. A missing
// permission is a finding for each namespace.
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

// get reads one object. It returns nil if the object does not exist.
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

// kind reads the objects of a feed in all namespaces, or in Options.Namespace if only that is allowed.
func (l *Listing) kind(ctx context.Context, f *feed) error {
	for _, version := range f.versions {
		err := l.pages(ctx, f, version)
		switch {
		case apierrors.IsNotFound(err): // the API server does not have the kind or the version
			continue
		case !apierrors.IsForbidden(err):
			return err
		}
		served, err := l.served(ctx, f, version)
		if err != nil {
			return err
		}
		if !served { // without permission, a missing kind is forbidden instead of not found
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

// served reports whether discovery has the kind of a feed.
func (l *Listing) served(ctx context.Context, f *feed, version string) (bool, error) {
	if f.core != nil {
		return true, nil
	}
	names, err := f.resources(ctx, version)
	if apierrors.IsForbidden(err) {
		return true, nil // without discovery, assume that it exists
	}
	return slices.Contains(names, f.plural), err
}

// attempts bounds how often a list is restarted because the API server has compacted its revision.
const attempts = 5

// pages reads all pages of a list. If the API server has compacted the list's revision meanwhile, it starts again and
// drops the earlier pages.
func (l *Listing) pages(ctx context.Context, f *feed, version string) error {
	client, err := f.client(version)
	if err != nil {
		return err
	}
	next, count, begun := "", 0, 1
	for {
		o := metav1.ListOptions{
			Limit: l.o.Page, Continue: next, FieldSelector: f.watched.selectors.fields, LabelSelector: f.watched.selectors.labels,
		}
		result := client.Get().NamespaceIfScoped(f.watched.selectors.namespace, f.watched.selectors.namespace != "").Resource(f.plural).
			VersionedParams(&o, metav1.ParameterCodec).Timeout(l.source.timeouts.answer).Do(ctx)
		if err := result.Error(); err != nil {
			if apierrors.IsResourceExpired(err) && begun < attempts {
				next, count = "", 0
				begun++
				for n := range f.entries { // objects may have changed since
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

// permission records a missing permission.
func (l *Listing) permission(f *feed, verb, where, effect string) {
	resource := f.plural
	if f.group != "" {
		resource += "." + f.group
	}
	d := denial{verb, where, effect}
	l.denied[d] = append(l.denied[d], resource)
}
