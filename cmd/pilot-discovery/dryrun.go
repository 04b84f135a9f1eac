package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// judged has the API server judge a change by a dry run. What it refuses is printed.
func (f *diffFlags) judged(c *cobra.Command, changes []kinds.Change) error {
	o, err := f.cluster.client()
	if err != nil {
		return fmt.Errorf("--server-side: %w", err)
	}
	config, err := f.cluster.config(o)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
	defer cancel()
	p := newProgress(c.ErrOrStderr(), "asking the API server")
	defer p.done()
	refused := 0
	refuse := func(what string, err error) error {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return f.tooLong(fmt.Errorf("--server-side: %s: %w", what, err)) // nobody has judged it
		}
		refused++
		fmt.Fprintf(c.ErrOrStderr(), "error: %s: the API server refuses it: %v\n", what, err)
		return nil
	}
	for _, texts := range f.texts {
		for _, t := range thingsOf(texts) {
			gv, err := schema.ParseGroupVersion(t.GetAPIVersion())
			k := kindOf(gv.Group, t.GetKind())
			if err != nil || k == nil {
				continue // no kind that is read here
			}
			if !k.Cluster && t.GetNamespace() == "" {
				t.SetNamespace(f.namespace)
			}
			if !slices.ContainsFunc(changes, func(c kinds.Change) bool {
				return c.Object != nil && c.Key == kinds.Key{Kind: k, Namespace: t.GetNamespace(), Name: t.GetName()}
			}) {
				continue // it is deleted
			}
			t.SetManagedFields(nil)
			_, err = client.Resource(gv.WithResource(k.Plural)).Namespace(t.GetNamespace()).Apply(ctx, t.GetName(), t.Unstructured, metav1.ApplyOptions{FieldManager: "pilot-discovery-diff", Force: true, DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				if err := refuse(t.named(), err); err != nil {
					return err
				}
			}
		}
	}
	for _, x := range changes {
		if x.Object != nil || len(x.Kind.Versions) == 0 {
			continue
		}
		gvr := schema.GroupVersionResource{Group: x.Kind.Group, Version: x.Kind.Versions[0], Resource: x.Kind.Plural}
		err := client.Resource(gvr).Namespace(x.Namespace).Delete(ctx, x.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			if err := refuse(x.Key.String(), err); err != nil {
				return err
			}
		}
	}
	if refused > 0 {
		return errors.New("the change is not one that the API server takes")
	}
	return nil
}
