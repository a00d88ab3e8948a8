// h2c is Go's own HTTP/2 without TLS, as network functions in Go run it: server and client with an idle timeout of a
// millisecond, so that nearly every request finds its connection closing or closed.
//
//	h2c serve IDLE          on a free port of 127.0.0.1, with that idle timeout (1ms); prints "ready PORT"
//	h2c VERB URL N          prints one line of JSON; exit status 1 when anything is wrong
//
//	churn      N requests with pauses about as long as the idle timeout
//	stream     one request with N bytes there and back, checksums in trailers
//	trailers   N of them at once, of growing size
//	crowd      N requests that are answered only when all are under way, on as many connections as net/http makes
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const idle = time.Millisecond

// --- the function ---------------------------------------------------------------------------------------------------

// echo sends the body back as it comes; the trailer tells what the function has read.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "Body-Sha256, Body-Size, Request-Trailer")
	http.NewResponseController(w).EnableFullDuplex()
	sum := sha256.New()
	n, err := io.Copy(w, io.TeeReader(r.Body, sum))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Body-Sha256", hex.EncodeToString(sum.Sum(nil)))
	w.Header().Set("Body-Size", strconv.FormatInt(n, 10))
	w.Header().Set("Request-Trailer", r.Trailer.Get("Client-Sha256"))
}

// barrier answers only when n requests are under way at once.
type barrier struct {
	lock    sync.Mutex
	waiting int
	open    chan struct{}
}

func (b *barrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	b.lock.Lock()
	open := b.open
	b.waiting++
	if b.waiting == n {
		close(b.open)
		b.open, b.waiting = make(chan struct{}), 0
	}
	b.lock.Unlock()
	select {
	case <-open:
		fmt.Fprintln(w, r.URL.Query().Get("i"))
	case <-time.After(60 * time.Second):
		http.Error(w, "too few came", http.StatusGatewayTimeout)
	}
}

// broken sends half of an HTTP/1.1 body that lasts until the connection closes, and then resets it.
func broken(w http.ResponseWriter, _ *http.Request) {
	c, out, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	out.WriteString("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhalf of it")
	out.Flush()
	time.Sleep(100 * time.Millisecond)
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func serve(idle string) error {
	timeout, err := time.ParseDuration(idle)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.Handle("/barrier", &barrier{open: make(chan struct{})})
	mux.HandleFunc("/broken", broken)
	mux.HandleFunc("/abort", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half of it")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "small") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("ready", listener.Addr().(*net.TCPAddr).Port)
	s := &http.Server{Handler: mux, IdleTimeout: timeout, Protocols: protocols(), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2000}}
	return s.Serve(listener)
}

// --- the consumer ---------------------------------------------------------------------------------------------------

func client(dials *atomic.Int64) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		IdleConnTimeout: idle,
		Protocols:       p,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
}

// body is n bytes that do not repeat, with their checksum in a trailer.
type body struct {
	left    int64
	random  *rand.Rand
	sum     hash.Hash
	trailer http.Header
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.trailer.Set("Client-Sha256", hex.EncodeToString(b.sum.Sum(nil)))
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.left))
	b.random.Read(p[:n])
	b.sum.Write(p[:n])
	b.left -= int64(n)
	return n, nil
}

func post(c *http.Client, url string, size int64) error {
	trailer := http.Header{"Client-Sha256": nil}
	b := &body{left: size, random: rand.New(rand.NewSource(size)), sum: sha256.New(), trailer: trailer}
	r, err := http.NewRequest("POST", url+"/echo", b)
	if err != nil {
		return err
	}
	r.Trailer = trailer
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	back := sha256.New()
	n, err := io.Copy(back, answer.Body)
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	want := hex.EncodeToString(b.sum.Sum(nil))
	for what, got := range map[string]string{
		"bytes that came back":  hex.EncodeToString(back.Sum(nil)),
		"bytes that arrived":    answer.Trailer.Get("Body-Sha256"),
		"the request's trailer": answer.Trailer.Get("Request-Trailer"),
	} {
		if got != want {
			return fmt.Errorf("%s: %q is not %q", what, got, want)
		}
	}
	return nil
}

func get(c *http.Client, url, want string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != 200 || string(got) != want) {
		err = fmt.Errorf("status %d, %q", answer.StatusCode, got)
	}
	return err
}

// churn asks n times with pauses about as long as the idle timeout.
func churn(c *http.Client, url string, n int) error {
	random := rand.New(rand.NewSource(1))
	for i := range n {
		err := get(c, url+"/small", "small")
		if err == nil && i%10 == 0 {
			err = put(c, url)
		}
		if err != nil {
			return fmt.Errorf("request %d of %d: %w", i+1, n, err)
		}
		time.Sleep(time.Duration(random.Int63n(int64(3 * idle))))
	}
	return nil
}

// put has a body that net/http may send again where a connection closed before the function saw it.
func put(c *http.Client, url string) error {
	text := []byte("a registration")
	r, err := http.NewRequest("PUT", url+"/echo", bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && !bytes.Equal(got, text) {
		err = fmt.Errorf("%q came back", got)
	}
	return err
}

func atOnce(n int, one func(i int) error) error {
	var wait sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		wait.Go(func() { failed[i] = one(i) })
	}
	wait.Wait()
	return errors.Join(failed...)
}

func run(verb, url string, n int, dials *atomic.Int64) error {
	c := client(dials)
	switch verb {
	case "churn":
		return churn(c, url, n)
	case "stream":
		return post(c, url, int64(n))
	case "trailers":
		return atOnce(n, func(i int) error { return post(c, url, int64(1000*i)) })
	case "crowd":
		return atOnce(n, func(i int) error { return get(c, fmt.Sprintf("%s/barrier?n=%d&i=%d", url, n, i), fmt.Sprintln(i)) })
	}
	return fmt.Errorf("there is no verb %s", verb)
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fmt.Fprintln(os.Stderr, serve(os.Args[2]))
		os.Exit(1)
	}
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: h2c serve IDLE | h2c VERB URL N")
		os.Exit(2)
	}
	n, err := strconv.Atoi(os.Args[3])
	var dials atomic.Int64
	if err == nil {
		err = run(os.Args[1], os.Args[2], n, &dials)
	}
	result := map[string]any{"verb": os.Args[1], "n": n, "dials": dials.Load(), "error": ""}
	if err != nil {
		result["error"] = err.Error()[:min(len(err.Error()), 2000)]
	}
	json.NewEncoder(os.Stdout).Encode(result)
	if err != nil {
		os.Exit(1)
	}
}
