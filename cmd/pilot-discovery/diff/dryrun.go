package diff

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// judged lets the API server validate a change by a dry run, and prints the objects that it rejects.
func (f *flags) judged(c *cobra.Command, changes []kinds.Change) error {
	o, err := f.Cluster.Client()
	if err != nil {
		return fmt.Errorf("--server-side: %w", err)
	}
	config, err := f.Cluster.Config(o)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), f.Timeout)
	defer cancel()
	p := cli.NewProgress(c.ErrOrStderr(), "asking the API server")
	defer p.Done()
	refused := 0
	refuse := func(what string, err error) error {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return f.TooLong(fmt.Errorf("--server-side: %s: %w", what, err)) // the API server gave no verdict
		}
		refused++
		fmt.Fprintln(c.ErrOrStderr(), terminal.Plain(fmt.Sprintf("error: %s: the API server refuses it: %v", what, err)))
		return nil
	}
	for _, texts := range f.texts {
		for _, t := range texts.Objects() {
			gv, err := schema.ParseGroupVersion(t.GetAPIVersion())
			k := kinds.Named(gv.Group, t.GetKind())
			if err != nil || k == nil {
				continue // a kind that is not read
			}
			if !k.Cluster && t.GetNamespace() == "" {
				t.SetNamespace(f.Namespace)
			}
			if !slices.ContainsFunc(changes, func(c kinds.Change) bool {
				return c.Object != nil && c.Key == kinds.Key{Kind: k, Namespace: t.GetNamespace(), Name: t.GetName()}
			}) {
				continue // the object is deleted
			}
			t.SetManagedFields(nil)
			_, err = client.Resource(gv.WithResource(k.Plural)).Namespace(t.GetNamespace()).Apply(ctx, t.GetName(), t,
				metav1.ApplyOptions{FieldManager: "pilot-discovery-diff", Force: true, DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				if err := refuse(t.GetKind()+" "+path.Join(t.GetNamespace(), t.GetName()), err); err != nil {
					return err
				}
			}
		}
	}
	for _, x := range changes {
		if x.Object != nil {
			continue
		}
		var err error
		for _, version := range x.Kind.Versions { // an API server may have an older version alone
			gvr := schema.GroupVersionResource{Group: x.Kind.Group, Version: version, Resource: x.Kind.Plural}
			err = client.Resource(gvr).Namespace(x.Namespace).Delete(ctx, x.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsNotFound(err) {
				break
			}
		}
		if err != nil {
			if err := refuse(x.Key.String(), err); err != nil {
				return err
			}
		}
	}
	if refused > 0 {
		return errors.New("the API server rejects the change")
	}
	return nil
}
