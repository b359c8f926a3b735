"""Files that lie elsewhere: addresses of object stores and web servers, and how fsspec reaches them."""
