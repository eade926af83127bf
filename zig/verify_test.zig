test {}
