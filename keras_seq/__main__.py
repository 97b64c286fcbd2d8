"""`python -m keras_seq` is `keras-seq`."""

from keras_seq.commands import main

if __name__ == "__main__":
    main()
