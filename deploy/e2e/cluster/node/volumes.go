package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes creates the pod's volumes, and returns the folder of each.
func (p *pod) volumes() (map[string]string, error) {
	out := map[string]string{}
	for _, v := range p.object.Spec.Volumes {
		dir, err := p.node.folder(string(p.object.UID), "volumes", v.Name)
		if err != nil {
			return nil, err
		}
		out[v.Name] = dir
		if err := p.fill(dir, v); err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return out, nil
}

// refresh writes ConfigMaps and Secrets of volumes again that have changed, as a kubelet does from time to time.
func (p *pod) refresh() error {
	var errs []error
	for _, v := range p.object.Spec.Volumes {
		sources := []corev1.VolumeProjection{}
		switch {
		case v.ConfigMap != nil:
			sources = append(sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}})
		case v.Secret != nil:
			sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional}})
		case v.Projected != nil:
			sources = v.Projected.Sources
		}
		dir := filepath.Join(p.dir, "volumes", v.Name)
		for _, s := range sources {
			switch {
			case s.Secret != nil:
				errs = append(errs, p.secret(dir, s.Secret.Name, s.Secret.Items, s.Secret.Optional))
			case s.ConfigMap != nil:
				errs = append(errs, p.configMap(dir, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *pod) fill(dir string, v corev1.Volume) error {
	switch {
	case v.EmptyDir != nil:
		return nil
	case v.Secret != nil:
		return p.secret(dir, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		return p.configMap(dir, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return p.downward(dir, v.DownwardAPI.Items)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			var err error
			switch {
			case s.Secret != nil:
				err = p.secret(dir, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
			case s.ConfigMap != nil:
				err = p.configMap(dir, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
			case s.DownwardAPI != nil:
				err = p.downward(dir, s.DownwardAPI.Items)
			case s.ServiceAccountToken != nil:
				err = p.token(dir, s.ServiceAccountToken)
			default:
				err = fmt.Errorf("source %v is not supported", s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("type %v is not supported", v.VolumeSource)
}

func (p *pod) secret(dir, secretName string, items []corev1.KeyToPath, optional *bool) error {
	s, err := p.node.o.Cluster.Client().CoreV1().Secrets(p.object.Namespace).Get(p.ctx, secretName, metav1.GetOptions{})
	if err != nil {
		return missing(err, optional)
	}
	return write(dir, s.Data, items)
}

func (p *pod) configMap(dir, mapName string, items []corev1.KeyToPath, optional *bool) error {
	m, err := p.node.o.Cluster.Client().CoreV1().ConfigMaps(p.object.Namespace).Get(p.ctx, mapName, metav1.GetOptions{})
	if err != nil {
		return missing(err, optional)
	}
	data := map[string][]byte{}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	for k, v := range m.BinaryData {
		data[k] = v
	}
	return write(dir, data, items)
}

func missing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

func write(dir string, data map[string][]byte, items []corev1.KeyToPath) error {
	if items == nil {
		for k := range data {
			items = append(items, corev1.KeyToPath{Key: k, Path: k})
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("there is no key %s", item.Key)
		}
		if err := writeFile(filepath.Join(dir, item.Path), value); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a file whole, unless it has the value already.
func writeFile(path string, value []byte) error {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, value) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, value, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func (p *pod) downward(dir string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = p.field(item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = p.resource(nil, item.ResourceFieldRef)
		}
		if err == nil {
			err = writeFile(filepath.Join(dir, item.Path), []byte(value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lines formats labels and annotations as a kubelet does.
func lines(m map[string]string) string {
	var out []string
	for k, v := range m {
		text, _ := json.Marshal(v) // a string can always be encoded
		out = append(out, k+"="+string(text))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (p *pod) token(dir string, s *corev1.ServiceAccountTokenProjection) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.object.Name,
			UID: p.object.UID},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	made, err := p.node.o.Cluster.Client().CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(p.ctx, p.object.Spec.ServiceAccountName,
		request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, s.Path), []byte(made.Status.Token))
}
