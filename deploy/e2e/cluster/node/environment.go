package node

import (
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment returns the variables of a container, and expands them in its command.
func (p *pod) environment(c corev1.Container) (env map[string]string, err error) {
	server, err := url.Parse(p.node.o.Cluster.Admin().Server)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(server.Host)
	if err != nil {
		return nil, err
	}
	env = map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "HOSTNAME": p.object.Name,
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	}
	for _, v := range c.Env {
		value := expand(v.Value, env)
		if from := v.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil:
				value, err = p.field(from.FieldRef.FieldPath)
			case from.ResourceFieldRef != nil:
				value, err = p.resource(&c, from.ResourceFieldRef)
			case from.ConfigMapKeyRef != nil:
				var m *corev1.ConfigMap
				m, err = p.node.o.Cluster.Client().CoreV1().ConfigMaps(p.object.Namespace).Get(p.ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
				if err = missing(err, from.ConfigMapKeyRef.Optional); err == nil && m != nil {
					value = m.Data[from.ConfigMapKeyRef.Key]
				}
			default:
				err = fmt.Errorf("its source is not supported")
			}
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		env[v.Name] = value
	}
	return env, nil
}

// expand replaces $(NAME) by the value of the variable.
func expand(text string, env map[string]string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "$(")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		variable, after, ok := strings.Cut(rest, ")")
		value, known := env[variable]
		if !ok || !known {
			out.WriteString("$(")
			text = rest
			continue
		}
		out.WriteString(value)
		text = after
	}
}

// field returns the value of a fieldRef.
func (p *pod) field(path string) (string, error) {
	o, host := p.object, p.node.host().String()
	fields := map[string]string{
		"metadata.name": o.Name, "metadata.namespace": o.Namespace, "metadata.uid": string(o.UID), "metadata.labels": lines(o.Labels),
		"metadata.annotations": lines(o.Annotations),
		"spec.nodeName":        name, "spec.serviceAccountName": o.Spec.ServiceAccountName,
		"status.podIP": p.addr.String(), "status.podIPs": p.addr.String(), "status.hostIP": host, "status.hostIPs": host,
	}
	if value, ok := fields[path]; ok {
		return value, nil
	}
	for prefix, m := range map[string]map[string]string{"metadata.labels['": o.Labels, "metadata.annotations['": o.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return m[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("field %s is not supported", path)
}

// resource returns the value of a resourceFieldRef: a limit or, without one, the node's capacity.
func (p *pod) resource(c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	for i := range p.object.Spec.Containers {
		if ref.ContainerName == p.object.Spec.Containers[i].Name {
			c = &p.object.Spec.Containers[i]
		}
	}
	if c == nil {
		return "", fmt.Errorf("there is no container %q", ref.ContainerName)
	}
	divisor := ref.Divisor.AsApproximateFloat64()
	if divisor == 0 {
		divisor = 1
	}
	value := func(list corev1.ResourceList, resource corev1.ResourceName, or float64) string {
		if q, ok := list[resource]; ok {
			or = q.AsApproximateFloat64()
		}
		n := int64(or / divisor)
		if float64(n)*divisor < or {
			n++
		}
		return strconv.FormatInt(n, 10)
	}
	switch ref.Resource {
	case "limits.cpu":
		return value(c.Resources.Limits, corev1.ResourceCPU, float64(runtime.NumCPU())), nil
	case "limits.memory":
		return value(c.Resources.Limits, corev1.ResourceMemory, 1<<30), nil
	case "requests.cpu":
		return value(c.Resources.Requests, corev1.ResourceCPU, 0), nil
	case "requests.memory":
		return value(c.Resources.Requests, corev1.ResourceMemory, 0), nil
	}
	return "", fmt.Errorf("resource %s is not supported", ref.Resource)
}
