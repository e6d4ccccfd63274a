// Command bare-binder-go lists the waiting pods and the nodes once and binds the pods round robin,
// deciding nothing. It shows how fast this machine's API server takes bindings at all.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

type object struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
	} `json:"metadata"`
}

type list struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

func main() {
	server := flag.String("server", "", "URL of the API server")
	ca := flag.String("ca", "", "certificate authority file")
	cert := flag.String("cert", "", "client certificate file")
	key := flag.String("key", "", "client key file")
	inFlight := flag.Int("in-flight", 64, "bindings written at the same time")
	flag.Parse()

	client := newClient(*ca, *cert, *key, *inFlight)
	pods := fetch(client, *server+"/api/v1/pods?limit=2000&fieldSelector="+url.QueryEscape("spec.nodeName="))
	nodes := fetch(client, *server+"/api/v1/nodes?limit=2000")
	if len(nodes) == 0 {
		log.Fatal("no nodes")
	}
	var next, failed atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for range *inFlight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				i := int(next.Add(1) - 1)
				if i >= len(pods) {
					return
				}
				if err := bind(client, *server, pods[i], nodes[i%len(nodes)].Metadata.Name); err != nil {
					failed.Add(1)
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}()
	}
	workers.Wait()
	result := map[string]any{"pods": len(pods), "failed": failed.Load(), "seconds": time.Since(start).Seconds()}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
}

func newClient(ca, cert, key string, connections int) *http.Client {
	pem, err := os.ReadFile(ca)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		MaxIdleConnsPerHost: connections,
		MaxConnsPerHost:     connections,
	}
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func fetch(client *http.Client, address string) []object {
	var all []object
	token := ""
	for {
		reply, err := client.Get(address + "&continue=" + url.QueryEscape(token))
		if err != nil {
			log.Fatal(err)
		}
		var page list
		err = json.NewDecoder(reply.Body).Decode(&page)
		reply.Body.Close()
		if err != nil || reply.StatusCode != http.StatusOK {
			log.Fatalf("%s: %s %v", address, reply.Status, err)
		}
		all = append(all, page.Items...)
		if token = page.Metadata.Continue; token == "" {
			return all
		}
	}
}

func bind(client *http.Client, server string, pod object, node string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]string{"name": pod.Metadata.Name, "uid": pod.Metadata.UID},
		"target":     map[string]string{"apiVersion": "v1", "kind": "Node", "name": node},
	})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", server, pod.Metadata.Namespace, pod.Metadata.Name)
	reply, err := client.Post(path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 1000))
		return fmt.Errorf("%s: %s %s", pod.Metadata.Name, reply.Status, text)
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}
